# SPDX-License-Identifier: MIT
"""One launch of a benchmark: what a check asks of it, and what a job's output shows of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Reading
from busbar.parse.events import RankPlace
from busbar.parse.launch import parse_exit_status

NONCE = "BUSBAR_NONCE"
"""The variable with the nonce of a job. Our programs repeat it, which proves that their output is
from the job that a check started."""
Operation = tuple[str, int | None, int | None]
"""The name of an operation, and from and to which rank or GPU if it has a pair."""


@dataclass(frozen=True)
class BenchLaunch:
    """A command that a job runs, and what its output must hold."""

    bench: str
    """As ``busbar expect`` calls it, such as ``all_reduce``; or the program's own name."""
    command: tuple[str, ...]
    """The program and its options."""
    ranks: int
    sizes: tuple[int, ...]
    """Message sizes in bytes; each must have a reading."""
    gpus: tuple[int, ...] = ()
    """The GPU of each rank of a node, by its rank on the node; empty where none is used."""
    nodes: int = 1
    buffers: str = ""
    """``D D``, where the benchmark does not print it."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of this launch in addition to the environment of the job."""
    transports: tuple[str, ...] = ()
    """Permitted transports for the data, as named by UCX or NCCL."""
    across: tuple[str, ...] = ()
    """Ways that may carry it between nodes instead."""
    provider: str = ""
    """The libfabric provider that must carry the data, where the output names it."""
    log: str = ""
    """The library whose log shows the transport: ``ucx`` or ``nccl``; may be empty."""
    logs: str = "*"
    """The names of this launch's log files among those that the job leaves."""
    validated: bool = False
    """Whether the benchmark must check the data that it received."""
    placed: bool = True
    """Whether ``placed.sh`` starts it and says where each rank ran."""
    bands: bool = True
    """Whether the launch has a reading that a band judges; without one only the run is judged."""
    share_gpus: bool = False
    """Whether ranks share a GPU because the node has only one."""
    mixed: bool = False
    """Whether its readings use several kinds of buffers, which they name."""
    end: bool = False
    """Whether the tool ends its output with a line that says so."""
    nonce: str = ""
    """What the program must repeat in its start event; empty for programs that are not ours."""
    operations: tuple[Operation, ...] = ()
    """What one of our own programs measures at each size."""

    def option(self, name: str) -> str:
        """The word after an option of the command; empty without it."""
        return next((b for a, b in pairwise(self.command) if a == name), "")

    def traced(self, start: Sequence[str]) -> str:
        """The command line as a shell traces it, which marks where this launch begins."""
        assignments = [f"{name}={value}" for name, value in self.environment]
        return "$ " + shlex.join([*assignments, *start, *self.command])


@dataclass(frozen=True)
class LaunchOutput:
    """What one launch printed."""

    facts: JobOutput
    ranks: tuple[RankPlace, ...] = ()
    """Where ranks ran, as ``placed.sh`` or our own programs say, in the order of the ranks."""
    text: tuple[str, ...] = field(default=(), repr=False)
    file: str = ""
    """The file that has this text."""
    first: int = 1
    """The number of its first line there."""
    of_request: tuple[Reading, ...] = ()
    """Readings that only the request identifies."""

    @property
    def readings(self) -> list[Reading]:
        """What was measured."""
        return [*self.facts.readings, *self.of_request]

    @property
    def died(self) -> bool:
        """Whether the program ended badly, or its end is missing. Output that it did not reach is
        then not a separate problem."""
        return self.facts.exit_status is None or bool(self.facts.exit_status.code)

    @property
    def until_exit(self) -> Sequence[str]:
        """The lines before the exit status: the program prints nothing after it."""
        exits = (at for at, line in enumerate(self.text) if parse_exit_status(line) is not None)
        return self.text[: next(exits, len(self.text))]

    @property
    def runs(self) -> int:
        """How often the program started in it; singletons are several."""
        return max(len(self.facts.launches), 1)


def powers(first: int, last: int, factor: int = 2) -> tuple[int, ...]:
    """``first``, ``first * factor``... up to ``last``."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return tuple(sizes)
