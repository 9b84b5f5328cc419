# SPDX-License-Identifier: MIT
"""Do OSU's point-to-point tests reach what the links between two GPUs allow?

$ osu_bw -m 16777216:16777216 D D
$ osu_latency -m 8:8192 D D
$ osu_bw -c -m 65536:1048576 D D
$ osu_bw -c -m 65536:1048576
$ osu_mbw_mr -m 4194304:67108864 D D
"""

from __future__ import annotations

from dataclasses import replace

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from busbar.engine.launch import BenchLaunch, powers
from busbar.tools.osu.request import command
from busbar.units import MIB

from .bench import BenchCheck, Launches


class OsuPair(BenchCheck, special=True):
    """Runs one OSU test between two GPUs, a launch for each pair."""

    valid_systems = ["+pair"]
    valid_prog_environs = ["+osu +cuda", "+osu +rocm"]
    bench = parameter(["osu_bw"])
    buffers = parameter(["D D"])
    #: The smallest and the largest message of each set.
    # The published range of AMD's runs, and the one of the runs on 4 x H200.
    message_sizes = {"quick": (16 * MIB, 16 * MIB), "full": (4 * MIB, 256 * MIB)}
    #: Whether the test checks the data itself.
    validated = False

    def pairs(self) -> list[tuple[int, int]]:
        """GPU 0 with each other one, as published; every ordered pair in the full set."""
        every = range(self.gpus)
        if self.size_set == "full":
            return [(a, b) for a in every for b in every if a != b]
        return [(0, b) for b in every if b]

    def command(self) -> tuple[str, ...]:
        """Return ``osu_bw -m FIRST:LAST D D``."""
        return command(
            self.program(self.bench),
            self.message_sizes[self.size_set],
            validated=self.validated,
            more=self.added,
            buffers=self.buffers if self.on_gpu else "",
        )

    def launches(self) -> Launches:
        return [self.launch(*pair) for pair in self.pairs()]

    def launch(self, source: int, target: int) -> BenchLaunch:
        """One pair; each rank sees both GPUs and takes the one of its place on the node."""
        gpus = (source, target) if self.node_count == 1 else (source,)
        return BenchLaunch(
            bench=self.bench,
            command=self.command(),
            ranks=2,
            sizes=powers(*self.message_sizes[self.size_set]),
            gpus=gpus if self.on_gpu else (),
            nodes=self.node_count,
            buffers=self.buffers,
            environment=self.visible(*gpus) if self.on_gpu else (),
            transports=self.environment.transports if self.node_count == 1 else (),
            validated=self.validated,
        )


@rfm.simple_test
class pt2pt(OsuPair):  # noqa: N801 - ReFrame's test names are what users type
    """Bandwidth one way, both ways, and latency, device to device."""

    descr = "osu_bw, osu_bibw and osu_latency between GPUs of a node"
    bench = parameter(["osu_bw", "osu_bibw", "osu_latency"])

    @run_after("init")
    def set_latency_sizes(self) -> None:
        if self.bench == "osu_latency":
            self.message_sizes = {"quick": (8, 8192), "full": (1, 4 * MIB)}


@rfm.simple_test
class pt2pt_host(OsuPair):  # noqa: N801 - see above
    """From and to host memory: the way that checkpoints and inputs take."""

    descr = "osu_bw between a GPU and host memory"
    buffers = parameter(["H D", "D H"])
    size_set = parameter(["full"])
    message_sizes = {"full": (4 * MIB, 16 * MIB)}

    def pairs(self) -> list[tuple[int, int]]:
        return [(0, 1)]


@rfm.simple_test
class pt2pt_data(OsuPair):  # noqa: N801 - see above
    """The data that arrives is the data that was sent, by OSU's own validation."""

    descr = "osu_bw with data validation"
    size_set = parameter(["quick"])
    message_sizes = {"quick": (65536, MIB)}
    validated = True

    def pairs(self) -> list[tuple[int, int]]:
        return [(0, 1)]

    def launch(self, source: int, target: int) -> BenchLaunch:
        return replace(super().launch(source, target), bands=False)


@rfm.simple_test
class pt2pt_cpu(pt2pt_data):  # noqa: N801 - see above
    """Two ranks of a node in host memory: what MPI does where there are no GPUs."""

    descr = "osu_bw in host memory, with data validation"
    valid_systems = ["*"]
    valid_prog_environs = ["+osu +host"]
    buffers = parameter(["H H"])


@rfm.simple_test
class pt2pt_sdma(OsuPair):  # noqa: N801 - see above
    """The copy engines of AMD GPUs, which most families turn off."""

    descr = "osu_bw with HSA_ENABLE_SDMA 1"
    valid_prog_environs = ["+osu +rocm"]
    env_vars = {"HSA_ENABLE_SDMA": "1"}


@rfm.simple_test
class pt2pt_pairs(OsuPair):  # noqa: N801 - see above
    """The first half of a node's GPUs sends to the second half, all at once."""

    descr = "osu_mbw_mr over all GPUs of a node"
    bench = parameter(["osu_mbw_mr"])
    size_set = parameter(["quick"])
    message_sizes = {"quick": (4 * MIB, 64 * MIB)}

    def launches(self) -> Launches:
        pair = self.launch(0, 1)
        every = tuple(range(self.gpus - self.gpus % 2))
        yield replace(pair, ranks=len(every), gpus=every, environment=())


@rfm.simple_test
class pt2pt_nodes(OsuPair):  # noqa: N801 - see above
    """From a GPU of one node to the same GPU of another."""

    descr = "osu_bw between two nodes"
    valid_systems = ["+remote"]
    node_count = 2
    size_set = parameter(["quick"])
    message_sizes = {"quick": (4 * MIB, 4 * MIB)}

    def pairs(self) -> list[tuple[int, int]]:
        return [(0, 0)]
