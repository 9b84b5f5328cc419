# SPDX-License-Identifier: MIT
"""Checks that run our own MPI program, ``gpu_aware``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import reframe.utility.typecheck as typ
from reframe.core.builtins import fixture, run_before, variable
from reframe.core.exceptions import ReframeError

from busbar.engine.collect import show
from busbar.engine.gpu_aware import GpuAwareRequest, judge
from busbar.engine.identify import copies_of
from busbar.engine.launch import LaunchOutput
from busbar.engine.run import Run
from busbar.parse.events import Start
from busbar.units import option_bytes, parse_bytes

from .base import BusbarCheck
from .judging import Judgement
from .programs import AT_END, BUSY, BuildProgram


class Sizes(tuple[int, ...]):
    """Message sizes in bytes; users set them as text, ``-S link_matrix.sizes=64K,1M``."""

    __slots__ = ()

    def __new__(cls, sizes: str | Iterable[int] = ()) -> Sizes:
        if isinstance(sizes, str):
            sizes = (parse_bytes(size) for size in sizes.split(",") if size)
        return super().__new__(cls, sizes)

    def option(self) -> str:
        """The value of an option of ``gpu_aware``."""
        return ",".join(map(option_bytes, self))


class BuildGpuAware(BuildProgram):
    """The MPI program."""

    sourcepath = "gpu_aware.cpp"


class GpuAwareCheck(BusbarCheck, special=True):
    """Runs ``gpu_aware`` with a rank for each GPU (or core) of its nodes and judges every line."""

    valid_prog_environs = ["+gpu_aware"]
    program = fixture(BuildGpuAware, scope="environment")
    own_program = True

    #: Sizes of the bandwidth readings.
    sizes = variable(Sizes, value=Sizes())
    #: Sizes of the latency readings.
    latency_sizes = variable(Sizes, value=Sizes())
    #: Sizes of the correctness tests.
    check_sizes = variable(Sizes, value=Sizes())
    #: Collectives whose results are checked.
    collectives = variable(typ.List[str], value=[])
    #: More options of the program; the tests inject faults with it.
    more_options = variable(str, value="")
    #: A command before the program, as in ``numactl --cpunodebind=0``.
    wrapper = variable(str, value="")
    #: What records beside the program what else uses the node.
    recorder: Sequence[str] = (BUSY,)

    def buffers(self) -> tuple[str, ...]:
        """Kinds of memory of sender and receiver; concrete checks choose."""
        return ("DD",) if self.on_gpu else ("HH",)

    def ranks_per_node(self) -> int:
        """A rank for each GPU or core; concrete checks may choose."""
        return self.partition.ranks_per_node

    @property
    def shares_gpu(self) -> bool:
        """Whether several ranks have to use one GPU."""
        return self.on_gpu and self.num_tasks_per_node > self.partition.ranks_per_node

    @run_before("run")
    def set_command(self) -> None:
        self.num_tasks_per_node = self.ranks_per_node()
        self.num_tasks = self.node_count * self.num_tasks_per_node
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, self.num_tasks_per_node
        self.across_nodes()
        inside = self.image.programs if self.image else {}
        program = inside.get("gpu_aware") or str(Path(self.program.stagedir, "gpu_aware"))
        words = [*self.recorder, *words_of(self.wrapper, "wrapper"), program]
        options = {
            "ranks": str(self.num_tasks),
            "buffers": ",".join(self.buffers()),
            "sizes": self.sizes.option(),
            "latency-sizes": self.latency_sizes.option(),
            "check": self.check_sizes.option(),
            "collectives": ",".join(self.collectives),
            "devices": ",".join(self.bus_ids()) if self.on_gpu else "",
        }
        words += [f"--{name}={value}" for name, value in options.items() if value]
        words += ["--share-devices"] if self.shares_gpu else []
        words += words_of(self.more_options, "more_options")
        self.executable, *self.executable_opts = map(shlex.quote, words)
        self.prerun_cmds = [*self.prerun_cmds, f"trap {shlex.quote(AT_END)} EXIT"]

    def bus_ids(self) -> tuple[str, ...]:
        """The PCI bus id of the GPU of each rank of a node; empty if the site lists none."""
        ids = self.partition.bus_ids
        return ids * self.num_tasks_per_node if self.shares_gpu else ids

    def asked(self) -> GpuAwareRequest:
        """The question, as the judgement reads it."""
        environment = self.environment
        return GpuAwareRequest(
            check=self.name,
            ranks=self.num_tasks,
            nodes=self.node_count,
            buffers=tuple(" ".join(pair) for pair in self.buffers()),
            sizes=self.sizes,
            latency_sizes=self.latency_sizes,
            check_sizes=self.check_sizes,
            collectives=tuple(self.collectives),
            lane=environment.lane,
            nonce=self.nonce,
            transports=environment.across if self.node_count > 1 else environment.transports,
            provider=environment.provider if self.node_count > 1 else "",
            statistic=statistic_of(words_of(self.more_options, "more_options")),
            share_gpus=self.shares_gpu,
        )

    def run_of(self, shown: LaunchOutput) -> Run:
        """What the readings of a run are compared with: the links, or copies of the same run."""
        return replace(
            self.known_run(),
            bench="gpu_aware",
            nodes=self.node_count,
            ranks=self.num_tasks,
            gpus={rank.rank: self.gpu_index(rank.device, rank.node_rank) for rank in shown.ranks},
            copies=None if self.on_gpu else copies_of(shown.facts),
        )

    def gpu_index(self, bus_id: str, node_rank: int) -> int:
        """The GPU's place in the topology; without known bus ids, ranks stand in GPU order."""
        known = self.partition.bus_ids
        return known.index(bus_id) if bus_id in known else node_rank

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        shown = show(self.name, [*output, *errors])
        results = judge(self.asked(), shown, self.run_of(shown))
        return Judgement(results, versions(shown))


def words_of(text: str, variable_name: str) -> list[str]:
    """Split what a user sets with ``-S`` into words; quotes keep blanks, nothing is expanded."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ReframeError(f"{variable_name}: {error} in {text!r}") from error


def statistic_of(options: Iterable[str]) -> str:
    """Return what the program measures by its options, the last of which counts."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--statistic", default="mean")
    return str(parser.parse_known_args([*options])[0].statistic)


def versions(shown: LaunchOutput) -> dict[str, str]:
    """What really ran; nothing if the program did not start."""
    for start, _ in shown.facts.events_of(Start):
        return {"mpi": start.mpi, "ucx": start.ucx, "gpu_driver": start.gpu_driver}
    return {}
