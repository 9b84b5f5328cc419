# SPDX-License-Identifier: MIT
"""One launch of a benchmark: what a check asks of it, and what a job's output shows of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from busbar.engine.collect import collect
from busbar.engine.job_output import JobOutput
from busbar.engine.nccl_json import NcclJson
from busbar.engine.reading import Evidence, Reading
from busbar.errors import BusbarError
from busbar.parse.events import Place
from busbar.parse.text import Source

Operation = tuple[str, int | None, int | None]
"""The name of an operation, and from and to which rank or GPU if it has a pair."""


@dataclass(frozen=True)
class BenchLaunch:
    """A command that a job runs, and what its output must hold."""

    bench: str
    """As ``busbar expect`` calls it: ``osu_bw``, ``all_reduce``; or the program's own name."""
    command: tuple[str, ...]
    """The program and its options."""
    ranks: int
    sizes: tuple[int, ...]
    """Message sizes of which each must have a reading, in bytes."""
    gpus: tuple[int, ...] = ()
    """The GPU of each rank of a node, by its rank on the node; empty where none is used."""
    nodes: int = 1
    buffers: str = ""
    """``D D``, where the benchmark does not print it."""
    environment: tuple[tuple[str, str], ...] = ()
    """What this launch sets beside the environment of the job."""
    transports: tuple[str, ...] = ()
    """Ways of which one must carry the data, as UCX or NCCL name them."""
    across: tuple[str, ...] = ()
    """Ways that may carry it between nodes instead."""
    log: str = ""
    """Whose log says how the data went: ``ucx`` or ``nccl``; empty where none does."""
    logs: str = "*"
    """The names of the log files that are this launch's, of those that the job leaves."""
    validated: bool = False
    """Whether the benchmark was told to check the data that it received."""
    placed: bool = True
    """Whether ``placed.sh`` starts it and says where each rank ran."""
    bands: bool = True
    """Whether the launch has a reading that a band judges; without one only the run is judged."""
    end: bool = False
    """Whether the tool ends its output with a line that says so."""
    nonce: str = ""
    """What the program must repeat in its start event; empty for programs that are not ours."""
    operations: tuple[Operation, ...] = ()
    """What one of our own programs measures at each size."""
    json: str = ""
    """The file for its results as JSON, which is requested if its usage has ``-J``."""

    @property
    def pair(self) -> str:
        """``0->1`` for two GPUs or two ranks; the benchmark otherwise."""
        if self.ranks != 2 or not self.bench.startswith("osu_"):
            return self.bench
        source, target = self.gpus if len(self.gpus) == 2 else (0, 1)
        return f"{source}->{target}"

    def traced(self, start: Sequence[str]) -> str:
        """The command line as a shell traces it, which marks where this launch begins."""
        assignments = [f"{name}={value}" for name, value in self.environment]
        return "$ " + shlex.join([*assignments, *start, *self.command])


@dataclass(frozen=True)
class LaunchOutput:
    """What one launch printed."""

    facts: JobOutput
    ranks: tuple[Place, ...] = ()
    """Where ranks ran, as ``placed.sh`` or our own programs say, in the order of the ranks."""
    text: tuple[str, ...] = field(default=(), repr=False)
    report: NcclJson | None = None
    """The requested JSON; None if none was requested."""

    @property
    def readings(self) -> list[Reading]:
        """Those of the JSON, which no log line can cut and which has more digits; else those of
        the table."""
        facts = self.report.facts if self.report else None
        return facts.readings if facts else self.facts.readings

    @property
    def died(self) -> bool:
        """Whether the program ended badly, or its end is missing: what it did not come to print
        is no problem of its own."""
        return self.facts.exit_status is None or bool(self.facts.exit_status.code)

    @property
    def runs(self) -> int:
        """How often the program started in it; singletons are several."""
        return max(len(self.facts.launches), 1)


_BEGINS = re.compile(r"^\$ \S")


def split(lines: Sequence[str]) -> list[list[str]]:
    """The output of each launch: what follows its traced command line, up to the next."""
    parts: list[list[str]] = []
    for line in lines:
        if _BEGINS.match(line):
            parts.append([line])
        elif parts:
            parts[-1].append(line)
    return parts


def show(name: str, lines: Sequence[str], logs: Sequence[Source] = ()) -> LaunchOutput:
    """The output of one launch; ``logs`` are files that its ranks wrote."""
    try:
        runs = collect([Source.from_text(name, "\n".join(lines) + "\n"), *logs])
    except BusbarError as error:  # it is no text
        runs = [JobOutput(files=[name])]
        runs[0].malformed.append((str(error), Evidence(name, 1, lines[0] if lines else "")))
    facts = runs[0]
    for more in runs[1:]:  # the same launch: programs that started apart from each other
        facts.merge_context(more)
        facts.readings += more.readings
        facts.finished = facts.finished or more.finished
    ranks = sorted((place for place, _ in facts.events_of(Place)), key=lambda place: place.rank)
    return LaunchOutput(facts, tuple(ranks), tuple(lines))


def powers(first: int, last: int, factor: int = 2) -> tuple[int, ...]:
    """``first``, ``first * factor``... up to ``last``."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return tuple(sizes)


def not_placed(ranks: Sequence[int]) -> str:
    """Return the problem of ranks whose node is unknown."""
    numbers = ", ".join(map(str, ranks))
    if len(ranks) == 1:
        return f"rank {numbers} did not report which node it ran on"
    return f"ranks {numbers} did not report which node they ran on"
