# SPDX-License-Identifier: MIT
"""Do NCCL and RCCL move collectives as fast as links and network allow?

$ all_reduce_perf -b 1M -e 1G -f 4 -g 1
$ all_reduce_perf -b 8 -e 1G -f 2 -g 1 -c 1 -n 100
$ all_reduce_perf -b 512 -e 18G -f 2 -g 1
"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import parameter

from busbar.engine.launch import BenchLaunch
from busbar.expect import COLLECTIVES
from busbar.site.delivery import GPU_STACKS
from busbar.tools.nccl_tests.request import LOG_FILES, LOGGED, SIZES

from .bench import BenchCheck, Launches


class XcclPerf(BenchCheck, special=True):
    """Runs one program of nccl-tests or rccl-tests with a rank for each GPU."""

    valid_systems = ["+pair"]
    valid_prog_environs = ["+xccl +cuda", "+xccl +rocm"]
    collective = parameter(list(COLLECTIVES))
    size_set = parameter(["quick", "nightly", "full"])
    #: GPUs of a node to use; 0 stands for all.
    ranks = parameter([0])
    sweeps = SIZES
    near_gpus = True
    log_files = LOG_FILES
    keep_files = [*BenchCheck.keep_files, LOG_FILES]
    env_vars = {**LOGGED}

    def command(self) -> tuple[str, ...]:
        """Return ``all_reduce_perf -b FIRST -e LAST -f FACTOR -g 1``."""
        return self.sweeps[self.size_set].command(
            self.program(f"{self.collective}_perf"), self.added
        )

    def launches(self) -> Launches:
        per_node = self.ranks or self.gpus
        yield BenchLaunch(
            bench=self.collective,
            command=self.command(),
            ranks=per_node * self.node_count,
            sizes=self.sweeps[self.size_set].judged,
            gpus=tuple(range(per_node)),
            nodes=self.node_count,
            transports=self.nccl_ways(),
            log="nccl",
            validated=True,
            end=True,
        )

    @property
    def harness(self) -> str:
        """What runs the collectives, as bands name it."""
        cuda = GPU_STACKS.get(self.environment.stack) == "cuda"
        return "nccl-tests" if cuda else "rccl-tests"


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
