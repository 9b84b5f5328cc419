# SPDX-License-Identifier: MIT
"""What the engine asks of a benchmark: one `Tool` for each package in `busbar.tools`.

The engine imports no tool. `busbar.tools` discovers its packages when it is imported first, and a
part that a package lacks is an error there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Evidence, Reading
from busbar.engine.run import Run
from busbar.engine.runs import Runs
from busbar.errors import BusbarError
from busbar.expect.expectation import Expectation
from busbar.parse.messages import Pattern
from busbar.parse.tables import load_yaml
from busbar.site.delivery import Delivery
from busbar.site.model import Site

_PACKAGE = "busbar.tools"
_FEATURES, _STATED = "features.yaml", "stated.yaml"


class Feature(NamedTuple):
    """What a check can require of an environment or a partition."""

    need: str
    """What a user needs to get it."""
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
    """Directories of an installation prefix besides ``bin`` and ``build``, as glob patterns."""
    system: str = ""
    """The system's directory for them, which is searched in addition to PATH."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """What the names of the programs match."""
        return (self.pattern,) if self.pattern else self.names


class Requested(NamedTuple):
    """A line of an output that repeats part of the request."""

    what: str
    line: str
    """An expression whose group ``value`` must equal an option's value, or one of ``values``."""
    values: Sequence[str] = ()
    """``{ranks}`` and ``{pairs}`` stand for the numbers of the launch."""
    options: Sequence[str] = ()
    when: str = ""
    unless: str = ""
    """Expressions: the row counts only for an output that has the one, and not the other."""
    always: bool = False
    """Whether each output with readings has such a line, in every version."""


class Tested(NamedTuple):
    """A data comparison that the tool made in addition to its readings."""

    operation: str
    buffers: str
    message: str
    """What is wrong; empty if nothing is."""


class Contradiction(NamedTuple):
    """Where an output does not agree with itself, and the line that shows it."""

    text: str
    evidence: Evidence | None


class TableReader:
    """Reads the lines of one file that are a tool's; a tool overrides what it prints."""

    triggers: tuple[str, ...] = ()
    """Texts in the lines that begin a table, for `busbar.parse.triggers`."""
    row_triggers: tuple[str, ...] = ()
    """Texts in rows."""
    plain_row_trigger = ""
    """A text in rows that look like much else: they are read only after a header of the tool."""

    messages: tuple[Pattern, ...] = ()
    """What else it prints, from its ``messages.yaml``."""
    row_line = b""
    """An expression for a line with only a row; excess rows of this kind are dropped."""

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


def measured(launch: BenchLaunch, shown: LaunchOutput) -> bool:
    """Return whether there is a reading: the tool checks all data that it measures with."""
    return bool(shown.readings)


def _nothing(*_: object) -> list[Any]:
    return []


@dataclass(frozen=True, kw_only=True)
class Tool:
    """All that the engine knows of a benchmark."""

    benches: tuple[str, ...]
    """How launches name it, as patterns: ``copy_*``."""
    outputs: tuple[str, ...] = ()
    """Further names of its outputs."""
    programs: Programs
    declared: Callable[[Site, Delivery], Iterable[str]] = _nothing
    """The features that a delivery brings without listing them in ``site.yaml``."""
    reader: type[TableReader] | None
    """None for our own programs: their lines are events, which the engine reads."""
    document: Callable[[str, str], JobOutput | None] | None = None
    """Reads a JSON document: the name of the file and its text."""
    bands: Callable[[Run, Reading], Sequence[Expectation]]
    """Limit and band of a reading, for each algorithm that may have run; raises
    ``NoExpectation``."""
    answer: Callable[[BenchLaunch, LaunchOutput], Iterable[str]]
    """Where the output differs from what was requested."""
    checked: Callable[[BenchLaunch, LaunchOutput], bool]
    """Whether the output says that the data was checked."""
    correctness: Callable[[BenchLaunch, LaunchOutput], Iterable[Tested]] = _nothing
    """The requested comparisons of data."""
    contradictions: Callable[[JobOutput, str | None, int | None], Iterable[Contradiction]] = (
        _nothing
    )
    """Contradictions in an output for this number of ranks, or with its collective."""
    derived: Callable[[Run, Sequence[Reading]], list[Reading]] = _nothing
    """Readings that follow from those that it printed."""
    of_launch: Callable[[BenchLaunch, LaunchOutput], list[Reading]] = _nothing
    """Readings whose meaning depends on the launch."""
    lone: Callable[[BenchLaunch, LaunchOutput], str] | None = None
    """Why each process ran alone; empty if they ran together."""
    harness: Callable[[Run, JobOutput], str | None] | None = None
    """What timed a collective, as bands name it."""
    ranks: Callable[[JobOutput], int | None] | None = None
    """The ranks that its output shows."""
    nodes: Callable[[JobOutput], int | None] | None = None
    """The nodes that its output lists, if it lists all."""
    operation: Callable[[JobOutput], str | None] | None = None
    """The collective of an output in which nothing names it."""
    buffers: Callable[[JobOutput], str] | None = None
    """The kinds of memory of an output that does not name them: ``H D``."""
    pairs: tuple[str, ...] = ()
    """Benchmarks that measure two GPUs; different pairs may have different links."""
    between_two: bool = False
    """Whether two ranks are shown as the pair of their GPUs."""
    started: str = ""
    """The message of a process that names its ``host``, if that is how its output begins."""
    early_events: bool = False
    """Whether its ranks can print events before the first one says what was started."""
    collective: bool = False
    """Whether the bands of collectives judge it, and not those of links."""
    files: tuple[str, ...] = ()
    """Its YAML files: those of features, messages, causes and examples that it has."""
    directory: Path = Path()
    """Where these are."""

    @cached_property
    def features(self) -> Mapping[str, Feature]:
        """What environments with its programs have, by the name that checks require."""
        rows = load_yaml(self.directory / _FEATURES) if _FEATURES in self.files else {}
        return {name: Feature(**row) for name, row in rows.items()}

    @cached_property
    def stated(self) -> list[Requested]:
        """What its output repeats of the request."""
        rows = load_yaml(self.directory / _STATED) if _STATED in self.files else {}
        return [Requested(what, **row) for what, row in rows.items()]


def discover(path: Iterable[str]) -> dict[str, Tool]:
    """Return the tools below ``path``; raise ``BusbarError`` if one lacks a part."""
    found = [each for top in path for each in sorted(Path(top).iterdir())]
    return {f.name: _load(f) for f in found if any((*f.glob("*.py"), *f.glob("*.yaml")))}


def _load(directory: Path) -> Tool:
    """Import the tool of a directory, and compare the files that it has with those it names."""
    name, tool = directory.name, _imported(directory)
    modules = {f"{each.stem}.yaml" for each in directory.glob("*.py")}  # their own tables
    present = {each.name for each in directory.glob("*.yaml")} - modules
    for missing in sorted({*tool.files} - present):
        raise _incomplete(name, f"has no part {missing}, which it names in its `files`")
    for strange in sorted(present - {*tool.files}):
        raise _incomplete(name, f"has {strange}, but does not name it in its `files`")
    return replace(tool, directory=directory)


def _imported(directory: Path) -> Tool:
    name, module = directory.name, f"{_PACKAGE}.{directory.name}"
    part = "" if (directory / "__init__.py").exists() else "__init__.py"
    try:
        tool: Tool = importlib.import_module(module).TOOL
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{module}."):
            raise
        part = (error.name or "").removeprefix(f"{module}.") + ".py"
    except FileNotFoundError as error:  # the table of a module
        part = Path(error.filename).name
    except KeyError as error:
        part = "messages.yaml"
        if (directory / part).exists():
            raise _incomplete(name, f"has a {part} without the table {error}") from error
    except (AttributeError, TypeError, ImportError) as error:
        if not part:
            raise _incomplete(name, f"is not complete: {error}") from error
    if part:
        raise _incomplete(name, f"has no part {part}")
    return tool


def _incomplete(name: str, reason: str) -> BusbarError:
    hint = 'CONTRIBUTING.md, "Add a benchmark", lists the parts of a tool'
    return BusbarError(f"the tool {name} {reason}", where=f"busbar/tools/{name}", hint=hint)


def tools() -> dict[str, Tool]:
    """Return all tools by the names of their packages."""
    found: dict[str, Tool] = importlib.import_module(_PACKAGE).TOOLS
    return found


@cache
def started_by() -> dict[str, str]:
    """Return the names of the tools that are known by a message of their processes."""
    return {tool.started: tool.benches[0] for tool in tools().values() if tool.started}


@cache
def early_program() -> str:
    """Return the program whose events can precede its start event."""
    return next((tool.benches[0] for tool in tools().values() if tool.early_events), "")


def pair_of(launch: BenchLaunch) -> str:
    """Return ``0->1`` for two ranks that are shown as a pair of GPUs; the benchmark otherwise."""
    tool = tool_of(launch.bench)
    if launch.ranks != 2 or not (tool and tool.between_two):
        return launch.bench
    source, target = launch.gpus if len(launch.gpus) == 2 else (0, 1)
    return f"{source}->{target}"


def joins_pair(bench: str) -> bool:
    """Return whether a benchmark measures two GPUs."""
    tool = tool_of(bench)
    return tool is not None and bench in tool.pairs


@cache
def tool_of(name: str) -> Tool | None:
    """Return the tool of a launch or an output; None if no tool has this name."""
    for tool in tools().values():
        if any(fnmatchcase(name, each) for each in (*tool.benches, *tool.outputs)):
            return tool
    return None
