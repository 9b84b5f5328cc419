# SPDX-License-Identifier: MIT
"""Do MPI's collectives keep GPU buffers on the GPUs' links?

$ osu_allreduce -d cuda -m 4194304:67108864
$ osu_bcast -d cuda -m 8:67108864
"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import parameter, run_after, variable

from busbar.engine.launch import BenchLaunch, powers
from busbar.tools.osu.request import command
from busbar.units import MIB

from .bench import BenchCheck, Launches


class OsuCollective(BenchCheck, special=True):
    """Latency as OSU prints it, and the bus bandwidth that it makes."""

    valid_systems = ["+pair"]
    bench = parameter(
        ["osu_allreduce", "osu_allgather", "osu_alltoall", "osu_bcast", "osu_reduce_scatter"]
    )
    near_gpus = True
    #: The number of ranks; 0 stands for all GPUs.
    ranks = variable(int, value=0)
    #: The smallest and the largest message of each set.
    message_sizes = {"quick": (4 * MIB, 64 * MIB), "full": (8, 64 * MIB)}

    @run_after("init")
    def set_features(self) -> None:
        # A broadcast only passes messages on. The others copy and add on the way, which an MPI
        # that was not built for GPUs does with host instructions, and dies.
        needs = "" if self.bench == "osu_bcast" else " +collectives"
        self.valid_prog_environs = [f"+osu +cuda{needs}", f"+osu +rocm{needs}"]

    def command(self) -> tuple[str, ...]:
        """Return ``osu_allreduce -d cuda -m FIRST:LAST``."""
        sizes = self.message_sizes[self.size_set]
        return command(self.program(self.bench), sizes, memory=self.gpu_memory, more=self.added)

    def launches(self) -> Launches:
        ranks = self.node_count * self.gpus
        if self.ranks:
            ranks = min(self.ranks, ranks)
        yield BenchLaunch(
            bench=self.bench,
            command=self.command(),
            ranks=ranks,
            sizes=powers(*self.message_sizes[self.size_set]),
            gpus=tuple(range(ranks // self.node_count)),
            nodes=self.node_count,
            buffers="D D",
            transports=self.environment.transports,
            across=self.environment.across if self.node_count > 1 else (),
        )


@rfm.simple_test
class collective(OsuCollective):  # noqa: N801 - ReFrame's test names are what users type
    """The number of ranks of the published run."""

    descr = "OSU collectives on GPU buffers, four ranks"
    ranks = 4
    size_set = parameter(["quick"])


@rfm.simple_test
class collective_node(OsuCollective):  # noqa: N801 - see above
    """All GPUs of a node."""

    descr = "OSU collectives on GPU buffers, all GPUs of a node"
    size_set = parameter(["full"])


@rfm.simple_test
class collective_nodes(OsuCollective):  # noqa: N801 - see above
    """All GPUs of two nodes, or of more (``-S nodes=4``)."""

    descr = "OSU collectives on GPU buffers, two nodes"
    valid_systems = ["+remote"]
    node_count = 2
    any_nodes = True
    size_set = parameter(["full"])
