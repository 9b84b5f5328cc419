# SPDX-License-Identifier: MIT
"""What the engine asks of a benchmark: one `Tool` for each package in `busbar.tools`.

The engine imports no tool. `busbar.tools` discovers its packages when it is imported first, and a
part that a package lacks is an error there.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Evidence, Reading
from busbar.engine.run import Run
from busbar.engine.runs import Runs
from busbar.errors import BusbarError
from busbar.expect.expectation import Expectation
from busbar.site.delivery import Delivery
from busbar.site.model import Site

_PACKAGE = "busbar.tools"


class Feature(NamedTuple):
    """What a check can require of an environment or a partition."""

    need: str
    """What somebody who lacks it needs."""
    meaning: str
    provider: str
    how: str
    program: str = ""
    """The program of the tool that provides it; empty if something else does."""
    compiled: bool = False
    """Whether it is a program of ours, which the compiler of the MPI provides."""


@dataclass(frozen=True)
class Programs:
    """The programs of a tool, and where they are installed."""

    names: tuple[str, ...] = ()
    """Those that are searched on PATH."""
    pattern: str = ""
    """What their names match; empty for `names` only."""
    places: tuple[str, ...] = ()
    """Directories of an installation prefix, beside ``bin`` and ``build``, as glob patterns."""
    system: str = ""
    """A directory where the system has them, which is then searched beside PATH."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """What the names of the programs match."""
        return (self.pattern,) if self.pattern else self.names


class Tested(NamedTuple):
    """A comparison of data that the tool made beside its readings."""

    operation: str
    buffers: str
    message: str
    """What is wrong; empty if nothing is."""


class Contradiction(NamedTuple):
    """Where an output does not agree with itself, and the line that shows it."""

    text: str
    evidence: Evidence | None


class Reader:
    """Reads the lines of one file that are a tool's; a tool overrides what it prints."""

    triggers: tuple[str, ...] = ()
    """Texts in the lines that begin a table, for `busbar.parse.triggers`."""
    row_triggers: tuple[str, ...] = ()
    """Texts in rows."""
    plain_row_trigger = ""
    """A text in rows that look like much else: they are read only after a header of the tool."""

    row_line = b""
    """An expression for a line with a row and nothing else: of so many that no more are kept."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    @property
    def run(self) -> JobOutput:
        """The run that is being read."""
        return self.runs.current

    @property
    def row_is_cut(self) -> bool:
        """Whether the rest of a row is still to come."""
        return False

    def comment(self, number: int, text: str) -> bool:
        """Take a line that begins with ``#``; return whether it is the tool's."""
        return False

    def row(self, number: int, line: bytes, key: bytes) -> bool:
        """Take another line, whose prefix was ``key``; return whether it is the tool's."""
        return False

    def end_of_file(self, last: int) -> None:
        """Note what is unfinished in the ``last`` line, which has no newline."""


def _no_readings(run: Run, readings: Sequence[Reading]) -> list[Reading]:
    return []


def measured(launch: BenchLaunch, shown: LaunchOutput) -> bool:
    """Return whether there is a reading: the tool checks all data that it measures with."""
    return bool(shown.facts.readings)


def _no_more(launch: BenchLaunch, shown: LaunchOutput) -> list[Reading]:
    return []


def _nothing(*_: object) -> Iterator[str]:
    return iter(())


@dataclass(frozen=True, kw_only=True)
class Tool:
    """All that the engine knows of a benchmark."""

    benches: tuple[str, ...]
    """How launches name it, as patterns: ``osu_*``."""
    outputs: tuple[str, ...] = ()
    """Further names of its outputs."""
    programs: Programs
    features: Mapping[str, Feature]
    """What environments with its programs have, by the name that checks require."""
    declared: Callable[[Site, Delivery], Iterable[str]] = _nothing
    """The features that a delivery brings without listing them in ``site.yaml``."""
    reader: type[Reader] | None
    """None for our own programs: their lines are events, which the engine reads."""
    document: Callable[[str, str], JobOutput | None] | None = None
    """Reads a JSON document: the name of the file and its text."""
    bands: Callable[[Run, Reading], Sequence[Expectation]]
    """Limit and band of a reading, for each algorithm that may have run; raises
    ``NoExpectation``."""
    answer: Callable[[BenchLaunch, LaunchOutput], Iterator[str]]
    """Where the output differs from what was requested."""
    checked: Callable[[BenchLaunch, LaunchOutput], bool]
    """Whether the output says that the data was checked."""
    correctness: Callable[[BenchLaunch, LaunchOutput], Iterator[Tested]] = _nothing  # type: ignore[assignment]
    """The requested comparisons of data."""
    contradictions: Callable[[JobOutput, str | None, int | None], Iterator[Contradiction]] = (
        _nothing  # type: ignore[assignment]
    )
    """Where an output of so many ranks does not agree with itself, or with the collective."""
    derived: Callable[[Run, Sequence[Reading]], list[Reading]] = _no_readings
    """Readings that follow from those that it printed."""
    of_launch: Callable[[BenchLaunch, LaunchOutput], list[Reading]] = _no_more
    """Readings in an output that only shows with its launch of what they are."""
    report: Callable[[BenchLaunch, LaunchOutput], Iterator[str]] = _nothing
    """Where the file that it wrote beside its table differs from the table."""
    lone: Callable[[BenchLaunch, LaunchOutput], str] | None = None
    """Why each process ran alone; empty if they ran together."""
    harness: Callable[[Run, JobOutput], str | None] | None = None
    """What timed a collective, as bands name it."""
    ranks: Callable[[JobOutput], int | None] | None = None
    """The ranks that its output shows."""
    collective: bool = False
    """Whether the bands of collectives judge it, and not those of links."""
    causes: tuple[str, ...] = ()
    """The causes that are declared in its ``causes.yaml``."""


def discover(path: Iterable[str]) -> dict[str, Tool]:
    """Return the tools below ``path``; raise ``BusbarError`` if one lacks a part."""
    found: dict[str, Tool] = {}
    for module in pkgutil.iter_modules(path):
        name = f"{_PACKAGE}.{module.name}"
        where = f"busbar/tools/{module.name}"
        try:
            tool = importlib.import_module(name).TOOL
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(name):
                raise
            part = (error.name or "").removeprefix(f"{name}.")
            raise BusbarError(
                f"the tool {module.name} has no part {part!r}",
                where=where,
                hint=f"write {where}/{part}.py; CONTRIBUTING.md lists the parts of a tool",
            ) from error
        except (AttributeError, TypeError, ImportError) as error:
            raise BusbarError(
                f"the tool {module.name} is not complete: {error}",
                where=where,
                hint="CONTRIBUTING.md lists the parts of a tool",
            ) from error
        found[module.name] = tool
    return found


def tools() -> dict[str, Tool]:
    """Return all tools by the names of their packages."""
    found: dict[str, Tool] = importlib.import_module(_PACKAGE).TOOLS
    return found


@cache
def tool_of(name: str) -> Tool | None:
    """Return the tool of a launch or an output; None if no tool has this name."""
    for tool in tools().values():
        if any(fnmatchcase(name, each) for each in (*tool.benches, *tool.outputs)):
            return tool
    return None


def directory_of(name: str) -> Path:
    """Return the directory of a tool."""
    return Path(__file__).parents[1] / "tools" / name
