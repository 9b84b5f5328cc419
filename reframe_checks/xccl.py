# SPDX-License-Identifier: MIT
"""Do NCCL and RCCL move collectives as fast as links and network allow?

$ all_reduce_perf -b 1M -e 1G -f 4 -g 1
$ all_reduce_perf -b 8 -e 1G -f 2 -g 1 -c 1 -n 100
$ all_reduce_perf -b 512 -e 18G -f 2 -g 1
"""

from __future__ import annotations

from typing import NamedTuple

import reframe as rfm
from reframe.core.builtins import parameter

from busbar.engine.launch import BenchLaunch, powers
from busbar.engine.reading import Note
from busbar.expect import COLLECTIVES
from busbar.expect.topology import domain_nodes
from busbar.site import Site
from busbar.site.delivery import GPU_STACKS
from busbar.tools.nccl_tests.report import FILES
from busbar.units import GIB, MIB, option_bytes

from .bench import BenchCheck

NET = {"verbs": ("NET/IB",), "efa": ("NET/AWS Libfabric", "NET/Libfabric")}
NET["cxi"] = NET["efa"]

LOG_FILES = "nccl.*.log"
# Into files: on standard output log lines cut result rows in two.
LOGGED = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,NET,P2P,SHM,TUNING",
    "NCCL_DEBUG_FILE": "nccl.%h.%p.log",
}


def ways(site: Site, *, nodes: int, partition: str) -> tuple[str, ...]:
    """How NCCL's log names the ways that data should take."""
    if nodes <= domain_nodes(site.node_type(partition)) or site.fabric is None:
        return ("P2P", "NVLS")
    networks = NET.get(site.fabric.provider, ("NET/",))
    if site.fabric.provider in NET and any(n.gpudirect for n in site.node_type(partition).nics):
        networks = tuple(f"{name}/GDRDMA" for name in networks)
    return ("P2P", "NVLS", *networks)


class Sweep(NamedTuple):
    """The sizes that one run goes through, and what else it is asked for."""

    first: int
    last: int
    factor: int
    options: str = ""


class XcclPerf(BenchCheck, special=True):
    """Runs one program of nccl-tests or rccl-tests with a rank for each GPU."""

    valid_systems = ["+pair"]
    valid_prog_environs = ["+xccl +cuda", "+xccl +rocm"]
    collective = parameter(list(COLLECTIVES))
    size_set = parameter(["quick", "nightly", "full"])
    #: GPUs of a node to use; 0 stands for all.
    ranks = parameter([0])
    # Published: -b 8 -e 1G -f 2 -g 1 (AMD), the same with -c 1 -n 100 (AWS), and
    # -b 512 -e 18G -f 2 -g 1 (2 x 8 H20).
    sweeps = {
        "quick": Sweep(MIB, GIB, 4),
        "nightly": Sweep(8, GIB, 2, "-c 1 -n 100"),
        "full": Sweep(512, 18 * GIB, 2),
    }
    near_gpus = True
    log_files = LOG_FILES
    keep_files = [*BenchCheck.keep_files, LOG_FILES, FILES]
    env_vars = {**LOGGED}

    def ways(self) -> tuple[str, ...]:
        """How NCCL's log names the ways of this check."""
        return ways(self.site, nodes=self.node_count, partition=self.current_partition.name)

    def command(self) -> tuple[str, ...]:
        """Return ``all_reduce_perf -b FIRST -e LAST -f FACTOR -g 1``."""
        first, last, factor, more = self.sweeps[self.size_set]
        return (
            *(self.program(f"{self.collective}_perf"), "-b", option_bytes(first)),
            *("-e", option_bytes(last), "-f", str(factor), "-g", "1"),
            *(*more.split(), *self.added),
        )

    def launches(self) -> list[BenchLaunch]:
        first, last, factor, _ = self.sweeps[self.size_set]
        per_node = self.ranks or self.gpus
        return [
            BenchLaunch(
                bench=self.collective,
                command=self.command(),
                ranks=per_node * self.node_count,
                # Smaller ones are rounded to what divides among ranks.
                sizes=tuple(size for size in powers(first, last, factor) if size >= MIB),
                gpus=tuple(range(per_node)),
                nodes=self.node_count,
                transports=self.ways(),
                log="nccl",
                validated=True,
                end=True,
                json=FILES.replace("*", "1"),
            )
        ]

    @property
    def floors(self) -> list[str]:
        """The collectives that no band judged."""
        return [
            each.reading.operation or launch.run.bench
            for launch in self.judged
            for each in launch.judgement.judged
            if each.expectation and each.expectation.floor
        ]

    @property
    def harness(self) -> str:
        """What runs the collectives, as bands name it."""
        cuda = GPU_STACKS.get(self.environment.stack) == "cuda"
        return "nccl-tests" if cuda else "rccl-tests"

    def remarks(self) -> list[Note]:
        """Collectives that no band judged."""
        notes = super().remarks()
        if self.floors:
            names = ", ".join(dict.fromkeys(self.floors))
            summary = (
                f"{names}: no run on such links is recorded; it had to be faster than the host"
                " link, which proves the transport and not the speed"
            )
            notes.append(Note("floor-only", summary))
        return notes


@rfm.simple_test
class xccl(XcclPerf):  # noqa: N801 - ReFrame's test names are what users type
    """All GPUs of a node."""

    descr = "nccl-tests or rccl-tests on all GPUs of a node"


@rfm.simple_test
class xccl_nodes(XcclPerf):  # noqa: N801 - see above
    """All GPUs of two nodes, or of more (``-S nodes=4``)."""

    descr = "nccl-tests or rccl-tests on two nodes"
    valid_systems = ["+remote"]
    node_count = 2
    any_nodes = True
