# SPDX-License-Identifier: MIT
"""Does libfabric alone carry data the way it should?

$ pair.sh data -B -P fi_pingpong -e rdm -p tcp -c -S 4096 -I 10
$ pair.sh rate -B -P fi_pingpong -e rdm -p tcp -v -S 1048576 -I 100
$ pair.sh write -E -E fi_rma_bw -e rdm -o write -p tcp -S 1048576 -I 100
"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import parameter

from busbar.engine.launch import BenchLaunch
from busbar.tools.fabtests import request

from .bench import PAIR, Launches, Pair


class Libfabric(Pair, special=True):
    """``fi_pingpong`` over the provider that the site's fabric has; data checked, then timed."""

    valid_prog_environs = ["+libfabric"]
    size_set = parameter(["quick"])

    @property
    def provider(self) -> str:
        """As libfabric names it; sockets alone where the site states no fabric."""
        fabric = self.site.fabric
        return fabric.provider if fabric else "tcp"

    def launches(self) -> Launches:
        port, one_sided = ("-B", "-P"), ("-E", "-E")
        pingpong = self.program("fi_pingpong")
        checked = request.pingpong(pingpong, self.provider)
        timed = request.rate(pingpong, self.provider, self.added)
        yield self.launch("fi_pingpong", request.CHECKED_SIZE, (PAIR, "data", *port, *checked))
        yield self.launch("fi_pingpong", request.SIZE, (PAIR, "rate", *port, *timed))
        if "fi_rma_bw" in self.environment.programs:
            written = request.write(self.program("fi_rma_bw"), self.provider, self.added)
            command = (PAIR, "write", *one_sided, *written)
            yield self.launch("fi_rma_bw", request.SIZE, command)

    def launch(self, bench: str, size: int, command: tuple[str, ...]) -> BenchLaunch:
        """Return a server and its client, on one node or on two."""
        return BenchLaunch(
            bench=bench,
            command=command,
            ranks=self.node_count,
            nodes=self.node_count,
            sizes=(size,),
            buffers="H H",
            placed=self.node_count > 1,
            # Only fi_pingpong says what it took, with -v. Told to check the data, it would with -v
            # print a line for each byte as well.
            provider=self.provider if "-v" in command else "",
            validated="-c" in command,
            bands=False,
        )


@rfm.simple_test
class fabric_libfabric(Libfabric):  # noqa: N801 - see above
    """Between two processes of a node, where there is no network to other nodes."""

    descr = "fi_pingpong on one node"
    valid_systems = ["-remote"]


@rfm.simple_test
class fabric_libfabric_nodes(Libfabric):  # noqa: N801 - see above
    """Between two nodes."""

    descr = "fi_pingpong between two nodes"
    valid_systems = ["+remote"]
    node_count = 2
