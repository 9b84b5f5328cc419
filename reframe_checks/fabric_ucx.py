# SPDX-License-Identifier: MIT
"""Does UCX alone carry data the way it should?

$ pair.sh node -p -p ucx_perftest -m cuda -t tag_bw -s 67108864 -n 50
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

import reframe as rfm
from reframe.core.builtins import parameter

from busbar import site as sites
from busbar.engine.launch import BenchLaunch
from busbar.engine.results import Result
from busbar.mpi import SHARED_MEMORY, network_transports
from busbar.site.model import Nic
from busbar.tools.ucx_perftest.request import ANY_SIZE, LOGGED, SIZE, command
from busbar.verdict import Verdict

from .bench import PAIR, Launches, Pair

_EVEN = 0.9
"""A port below this share of the middle one of its node is slow: they are of one kind."""
_TCP = 0.25
"""The least share of the rate of a port that one flow of TCP reaches, up to 100 Gbit/s."""
_ON_GPUS = ["+ucx +cuda", "+ucx +rocm"]


class UcxPerf(Pair, special=True):
    """``ucx_perftest`` between two processes."""

    size_set = parameter(["quick"])
    env_vars = {**LOGGED}

    @property
    def memory(self) -> str:
        """The kind of memory that the messages lie in, as the tool names it."""
        return "host"

    def launches(self) -> Launches:
        gpu = self.memory != "host"
        yield BenchLaunch(
            bench="ucx_perftest",
            command=self.command("node"),
            ranks=1,
            sizes=(SIZE,),
            buffers="D D" if gpu else "H H",
            transports=self.environment.transports if gpu else SHARED_MEMORY,
            placed=False,
            bands=gpu,
        )

    def command(self, name: str, size: int = SIZE) -> tuple[str, ...]:
        """Return both parts of one measurement."""
        both = command(self.program("ucx_perftest"), self.memory, size, self.added)
        return (PAIR, name, "-p", "-p", *both)


@rfm.simple_test
class fabric_ucx(UcxPerf):  # noqa: N801 - ReFrame's test names are what users type
    """UCX alone, host memory."""

    descr = "ucx_perftest in host memory"
    valid_systems = ["-gpu"]
    valid_prog_environs = ["+ucx"]


@rfm.simple_test
class fabric_ucx_host(fabric_ucx):  # noqa: N801 - see above
    """The same beside GPUs: nothing judges its rate, and a first look should be short."""

    descr = "ucx_perftest in host memory of a node with GPUs"
    valid_systems = ["+gpu"]
    size_set = parameter(["nightly"])


@rfm.simple_test
class fabric_ucx_gpu(UcxPerf):  # noqa: N801 - see above
    """UCX alone, from GPU to GPU."""

    descr = "ucx_perftest between two GPUs"
    valid_systems = ["+pair"]
    valid_prog_environs = _ON_GPUS

    @property
    def memory(self) -> str:
        return self.gpu_memory


class UcxNodes(UcxPerf, special=True):
    """``ucx_perftest`` between two nodes, by one port after the other."""

    # On EFA and Slingshot the traffic goes by libfabric.
    valid_systems = ["+remote -efa -cxi"]
    node_count = 2

    def launches(self) -> Launches:
        nics = self.site.node_type(self.current_partition.name).nics
        return map(self.between, nics or [None])

    @property
    def by_tcp(self) -> bool:
        """Whether the nodes have no network but Ethernet with TCP."""
        return not self.site.fabric or self.site.fabric.provider == "tcp"

    def between(self, nic: Nic | None) -> BenchLaunch:
        """One port of each node; whatever UCX takes where the site names none."""
        gpu = self.memory != "host"
        size = ANY_SIZE if self.by_tcp else SIZE
        chosen: tuple[tuple[str, str], ...] = (
            (("UCX_NET_DEVICES", nic.name if self.by_tcp else f"{nic.name}:1"),) if nic else ()
        )
        if gpu:
            chosen += self.visible(nic.near_gpus[0] if nic and nic.near_gpus else 0)
        return BenchLaunch(
            bench="ucx_perftest",
            command=self.command(nic.name if nic else "any", size),
            ranks=2,
            nodes=2,
            sizes=(size,),
            buffers="D D" if gpu else "H H",
            environment=chosen,
            transports=network_transports(self.site),
            bands=False,
        )

    def problems(self, results: list[Result]) -> Iterable[Result]:
        """Ports that are slower than the others of their node."""
        read = [(result, result.gb_per_s) for result in results if result.gb_per_s is not None]
        middle = median(rate for _, rate in read) if read else 0.0
        for result, rate in read:
            share = self.share_of_raw(result)
            what = ""
            if not self.by_tcp and rate < _EVEN * middle:
                what = f", the middle one of {len(read)} ports has {middle:.4g}"
            elif self.by_tcp and share < _TCP:  # no tuning of TCP explains that
                what = f" by TCP is {share:.0%} of the rate of the port; {_TCP:.0%} is the minimum"
            if what:
                message = f"{result.pair}: {rate:.4g} GB/s{what}"
                row = Result(self.name, Verdict.DEGRADED, pair=result.pair, message=message)
                yield replace(row, where=result.where)

    def share_of_raw(self, result: Result) -> float:
        """Return the reading as a share of the raw rate of its port; 1 if no port is named."""
        for nic in self.site.node_type(self.current_partition.name).nics:
            if result.pair.endswith(f" {nic.name}"):
                raw = sites.link_classes(self.site)[nic.link_class].raw_gb_per_s
                return (result.gb_per_s or 0) / raw
        return 1.0


@rfm.simple_test
class fabric_ucx_nodes(UcxNodes):  # noqa: N801 - see above
    """Every port, host memory."""

    descr = "ucx_perftest between two nodes, port by port"
    valid_prog_environs = ["+ucx"]


@rfm.simple_test
class fabric_ucx_gpu_nodes(UcxNodes):  # noqa: N801 - see above
    """Every port, with the memory of the GPU next to it."""

    descr = "ucx_perftest between GPUs of two nodes, port by port"
    valid_prog_environs = _ON_GPUS

    @property
    def memory(self) -> str:
        return self.gpu_memory
