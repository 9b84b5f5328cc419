# SPDX-License-Identifier: MIT
"""What is known of the run that a reading comes from.

A check knows it from what it started, an explanation from what the output shows. Both fill the
same record, so both get the same expectation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from busbar.engine.launch import BenchLaunch
from busbar.parse.events import Event
from busbar.site.model import Site


@dataclass(frozen=True)
class Run:
    """One launch of a benchmark; None or empty for what is not known."""

    site: Site | None = None
    partition: str | None = None
    check: str = ""
    """The check that started it, without its parameters."""
    bench: str = ""
    """What is measured, as a launch names it: a collective, or the program."""
    harness: str | None = None
    """What timed a collective, as bands name it."""
    nodes: int | None = None
    ranks: int | None = None
    """Ranks of all nodes."""
    placed: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """Ranks by communicator and host, if several communicators run at once."""
    lane: str | None = None
    environment: Mapping[str, str] | None = None
    """Variables that are known to be set; None if the site's own are assumed."""
    listed: tuple[str, ...] = ()
    """Prefixes of variables that are unset if ``environment`` lacks them; ``""`` for all."""
    engine: str | None = None
    """``sdma`` or ``kernel`` on AMD GPUs."""
    gpus: Mapping[int, int] = field(default_factory=dict)
    """The GPU of each rank."""
    buffers: str = ""
    """``D D``, ``H D``: memory of sender and receiver."""
    memory: Literal["", "host", "device"] = ""
    """Where the buffers are: in host memory on both sides, or on a GPU on at least one."""
    copies: tuple[Event, ...] | None = None
    """Copies without MPI that the run measured in addition to its readings."""
    algorithms: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """By collective (empty if not named) and size: the algorithm that NCCL's log names."""

    def algorithm(self, operation: str, nbytes: int) -> str | None:
        """Return the algorithm that ran; None if the log does not show it or the user chose it.

        A forced algorithm does not show what the library would reach.
        """
        if "NCCL_ALGO" in (self.environment or {}):
            return None
        of_size = {self.algorithms.get((name, nbytes)) for name in (operation, "")} - {None}
        of_any = {algo for (name, _), algo in self.algorithms.items() if name in (operation, "")}
        found = of_size or of_any
        return found.pop() if len(found) == 1 else None

    def gpu(self, rank: int) -> int:
        """Return the GPU of a rank; ranks use the GPUs in order unless known otherwise."""
        return self.gpus.get(rank, rank)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that the run may have used."""
        if self.site is None or self.partition:
            return (self.partition,) if self.partition else ()
        first_of_each_type = {p.node_type: p.name for p in reversed(self.site.partitions)}
        return tuple(p.name for p in self.site.partitions if p.name in first_of_each_type.values())


def of_launch(known: Run, launch: BenchLaunch) -> Run:
    """Complete ``known`` by what a check asks of one launch."""
    settings = {**(known.environment or {}), **dict(launch.environment)}
    each = launch.gpus
    gpus = {rank: each[rank % len(each)] for rank in range(launch.ranks) if each}
    return replace(
        known,
        bench=launch.bench,
        nodes=launch.nodes,
        ranks=launch.ranks,
        environment=settings,
        listed=("",),
        gpus=gpus,
        buffers=launch.buffers,
        memory="" if launch.mixed else "host" if launch.buffers == "H H" else "device",
    )
