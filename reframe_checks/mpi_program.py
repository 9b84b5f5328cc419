# SPDX-License-Identifier: MIT
"""Checks that run our own MPI program, ``gpu_aware``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import reframe.utility.typecheck as typ
from reframe.core.builtins import fixture, run_before, variable

from busbar.engine.launch import BenchLaunch
from busbar.engine.reading import Note
from busbar.redact import redact
from busbar.tools.gpu_aware.request import BEST_WINDOWS, command
from busbar.units import option_bytes, parse_bytes

from .bench import Launches, LaunchesCheck, words_of
from .programs import AT_END, BUSY, SOURCES, BuildProgram

_OWN_CORE = str(SOURCES / "own_core.sh")


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


class GpuAwareCheck(LaunchesCheck, special=True):
    """Runs ``gpu_aware`` with a rank for each GPU (or core) of its nodes and judges every line."""

    valid_prog_environs = ["+gpu_aware"]
    built = fixture(BuildGpuAware, scope="environment")
    own_program = True

    #: Sizes of the bandwidth readings.
    sizes = variable(Sizes, value=Sizes())
    #: Sizes of the latency readings.
    latency_sizes = variable(Sizes, value=Sizes())
    #: Sizes of the correctness tests.
    check_sizes = variable(Sizes, value=Sizes())
    #: Collectives whose results are checked.
    collectives = variable(typ.List[str], value=[])
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

    def take_best_windows(self, *more: str) -> None:
        """Measure on a machine that is shared with others, each rank on a core of its own."""
        self.more_options = " ".join((*more, BEST_WINDOWS, self.more_options))
        self.wrapper = f"{shlex.quote(_OWN_CORE)} {self.wrapper}"

    @property
    def shares_gpu(self) -> bool:
        """Whether several ranks have to use one GPU."""
        return self.on_gpu and self.ranks_per_node() > self.partition.ranks_per_node

    def launches(self) -> Launches:
        ranks = self.node_count * self.ranks_per_node()
        inside = self.image.programs if self.image else {}
        options = {
            "ranks": str(ranks),
            "buffers": ",".join(self.buffers()),
            "sizes": self.sizes.option(),
            "latency-sizes": self.latency_sizes.option(),
            "check": self.check_sizes.option(),
            "collectives": ",".join(self.collectives),
            "devices": ",".join(self.bus_ids()) if self.on_gpu else "",
        }
        across, environment = self.node_count > 1, self.environment
        yield BenchLaunch(
            bench="gpu_aware",
            command=command(
                inside.get("gpu_aware") or str(Path(self.built.stagedir, "gpu_aware")),
                options,
                *(["--share-devices"] if self.shares_gpu else []),
                *self.added,
            ),
            ranks=ranks,
            nodes=self.node_count,
            sizes=(),  # the command names them
            transports=environment.across if across else environment.transports,
            provider=environment.provider if across else "",
            share_gpus=self.shares_gpu,
            mixed=True,
            end=True,
            nonce=self.nonce,
        )

    def placing(self, launch: BenchLaunch) -> list[str]:
        return [*self.recorder, *words_of(self.wrapper, "wrapper")]

    def remarks(self) -> list[Note]:
        words = [word for word in words_of(self.wrapper, "wrapper") if word != _OWN_CORE]
        text = f"the program was started by {shlex.join(words)}"
        return [*super().remarks(), *([Note("wrapper", redact(text))] if words else [])]

    def bus_ids(self) -> tuple[str, ...]:
        """The PCI bus id of the GPU of each rank of a node; empty if the site lists none."""
        ids = self.partition.bus_ids
        return ids * self.ranks_per_node() if self.shares_gpu else ids

    @run_before("run")
    def print_record_at_exit(self) -> None:
        """Print what was recorded of others also if the job is ended."""
        self.prerun_cmds = [*self.prerun_cmds, f"trap {shlex.quote(AT_END)} EXIT"]
