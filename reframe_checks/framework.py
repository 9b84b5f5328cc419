# SPDX-License-Identifier: MIT
"""What do users of PyTorch see of the links?

$ torch torch_collectives.py --start --ranks 4 --collectives ... --sizes 16M,256M,1G

``torch`` is the Python that has PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_after

from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.results import Result
from busbar.expect import COLLECTIVES
from busbar.parse.events import Start
from busbar.site.delivery import GPU_STACKS
from busbar.tools.torch import SIZES, options
from busbar.verdict import Verdict

from .programs import BUSY, SOURCES
from .xccl import XcclPerf

_PROGRAM = str(SOURCES / "torch_collectives.py")
_OLDEST_ROCM = (6, 3)
"""The published runs through PyTorch used its RCCL and newer ones."""


class Torch(XcclPerf, special=True):
    """Collectives through PyTorch, with a process for each GPU."""

    valid_prog_environs = ["+torch +cuda", "+torch +rocm"]
    near_gpus = False  # the launcher starts one process, and that the ranks, on all CPUs
    collective = parameter(["all"])
    size_set = parameter(["quick"])
    own_program = True

    def start(self) -> tuple[str, ...]:
        """Return the words that start the ranks, up to our program."""
        raise NotImplementedError

    def launches(self) -> Iterator[BenchLaunch]:
        ranks = self.gpus * self.node_count
        yield BenchLaunch(
            bench="torch_collectives",
            command=(*self.start(), *options(ranks), *self.added),
            ranks=ranks,
            nodes=self.node_count,
            sizes=SIZES,
            operations=tuple((name, None, None) for name in COLLECTIVES),
            gpus=tuple(range(self.gpus)),
            transports=self.nccl_ways(),
            log="nccl",
            validated=True,
            end=True,
            nonce=self.nonce,
        )

    def processes(self) -> int:
        return self.node_count

    def placing(self, launch: BenchLaunch) -> list[str]:
        return [BUSY]  # the program says itself where its ranks are

    def known_versions(self) -> Mapping[str, str]:
        return {}  # PyTorch brings its own NCCL

    harness = "pytorch"

    def problems(self, results: list[Result]) -> Iterator[Result]:
        for shown in self.shown:
            for message in self.too_old(shown):
                yield Result(self.name, Verdict.FAILED, message=message)

    def too_old(self, shown: LaunchOutput) -> Iterator[str]:
        """RCCL's log names its ROCm; where it does not, PyTorch says which it was built for."""
        if GPU_STACKS.get(self.environment.stack) == "cuda":
            return
        versions = [*shown.facts.values("rocm.version", "version")]
        versions += [start.hip for start, _ in shown.facts.events_of(Start) if start.hip]
        if not versions:
            yield "neither the log nor PyTorch names the ROCm of its RCCL"
        elif (used := tuple(map(int, versions[0].split(".")[:2]))) < _OLDEST_ROCM:
            wanted = ".".join(map(str, _OLDEST_ROCM))
            yield f"RCCL is of ROCm {used[0]}.{used[1]}, but {wanted} or newer is required"


@rfm.simple_test
class framework(Torch):  # noqa: N801 - ReFrame's test names are what users type
    """All collectives on one node, each result checked."""

    descr = "collectives through PyTorch on all GPUs of a node"

    @run_after("setup")
    def start_without_mpi(self) -> None:
        self.job.launcher = getlauncher("local")()

    def start(self) -> tuple[str, ...]:
        return (self.program("torch"), _PROGRAM, "--start")


@rfm.simple_test
class framework_nodes(Torch):  # noqa: N801 - see above
    """The same on two nodes or more (``-S nodes=4``), each with a ``torch.distributed.run``."""

    descr = "collectives through PyTorch on two nodes"
    valid_systems = ["+remote"]
    node_count = 2
    any_nodes = True

    @run_after("setup")
    def start_one_process_a_node(self) -> None:
        self.leave_all_cores()
        if self.job.launcher.registered_name == "srun":
            self.prerun_cmds = ['scontrol show hostnames "$SLURM_JOB_NODELIST" >hosts']

    def start(self) -> tuple[str, ...]:
        meeting = (str(SOURCES / "rendezvous.sh"), self.program("torch"))
        # With underscores, as every release takes it.
        nodes = ("--nproc_per_node", str(self.gpus), "--nnodes", str(self.node_count))
        return (*meeting, "-m", "torch.distributed.run", *nodes, _PROGRAM)
