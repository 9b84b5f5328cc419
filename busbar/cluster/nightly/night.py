# SPDX-License-Identifier: MIT
"""The directory of one night, what is known of its stages, and the rotation of old nights."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from busbar.check.surroundings import write
from busbar.data import history_directory
from busbar.errors import BusbarError
from busbar.text_file import read_text
from busbar.verdict import Verdict, worst

SCHEMA = "busbar-night/1"
STAGES = ("gate", "sweep", "check", "sample")
"""In the order in which they run; ``sample`` is a part of the stage ``check``."""
_STATE = "night.json"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{4}Z(?:-\d+)?", re.ASCII)
_MOST_BYTES = 2**26


@dataclass(frozen=True)
class Finding:
    """What a stage found out about a node, a link or a check."""

    where: str
    verdict: Verdict
    message: str


@dataclass(frozen=True)
class Stage:
    """What came of a stage."""

    name: str
    verdict: Verdict
    message: str
    """One sentence."""
    finished: bool
    """Whether it came to its end: a resumed night repeats the others."""
    begun: str = ""
    """ISO 8601, UTC; empty if it did not begin."""
    seconds: float = 0.0
    nodes: tuple[str, ...] = ()
    """The nodes that it was started on."""
    findings: tuple[Finding, ...] = ()
    left_out: tuple[str, ...] = ()
    """The nodes that later stages leave out."""


@dataclass(frozen=True)
class State:
    """All that is known of a night; also the file that a resumed night begins with."""

    schema: str
    site: str
    partition: str
    begun: str
    """ISO 8601, UTC."""
    names: tuple[str, ...]
    """The stages of the night, in their order."""
    unusable: tuple[str, ...] = ()
    """Nodes that Slurm starts no job on, with their state."""
    stages: tuple[Stage, ...] = ()
    interrupted: str = ""
    """The signal that ended the night; empty if none did."""
    report: str = ""
    """The first page of the report; empty without one."""
    summary: tuple[str, ...] = ()
    """The lines of the summary that the report printed."""
    finished: bool = False
    """Whether the night came to its end; --max-hours is one."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the stages; one that is missing did not run."""
        missing = set(self.names) - {stage.name for stage in self.stages}
        return worst(
            [*(stage.verdict for stage in self.stages), *(Verdict.NOT_RUN for _ in missing)]
        )

    @property
    def left_out(self) -> frozenset[str]:
        """The nodes that failed the gate."""
        return frozenset(node for stage in self.stages for node in stage.left_out)

    def stage(self, name: str) -> Stage | None:
        """Return what came of a stage; None if it has not begun."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def with_stage(self, stage: Stage) -> State:
        """Return the state with a stage, which replaces an earlier attempt."""
        known = {each.name: each for each in self.stages} | {stage.name: stage}
        return replace(self, stages=tuple(known[name] for name in STAGES if name in known))


@dataclass(frozen=True)
class Night:
    """The directory of a night."""

    directory: Path

    @property
    def name(self) -> str:
        """``2026-11-22T0200Z``."""
        return self.directory.name

    def path(self, name: str) -> Path:
        """Return a file or directory of the night."""
        return self.directory / name

    def load(self) -> State:
        """Return the state; raise ``BusbarError`` if the file has none."""
        path = self.path(_STATE)
        hint = "start a new night without --resume"
        try:
            state = _states().validate_json(read_text(path, _MOST_BYTES))
            datetime.fromisoformat(state.begun)
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            raise BusbarError(what, where=str(path), hint=hint) from error
        except ValidationError as error:
            what = f"is not the state of a night: {error.errors()[0]['msg']}"
            raise BusbarError(what, where=str(path), hint=hint) from error
        except ValueError as error:
            raise BusbarError(str(error), where=str(path), hint=hint) from error
        if state.schema != SCHEMA:
            what = f"has the schema {state.schema!r}, not {SCHEMA}"
            raise BusbarError(what, where=str(path), hint=hint)
        return state

    def save(self, state: State) -> None:
        """Write the state as a whole or not at all."""
        write(self.path(_STATE), json.dumps(asdict(state), indent=1) + "\n")


@cache
def _states() -> TypeAdapter[State]:
    return TypeAdapter(State)


def begin(output: Path, now: datetime) -> Night:
    """Make the directory of a new night."""
    name = f"{now.astimezone(UTC):%Y-%m-%dT%H%MZ}"
    for number in range(1, 1000):
        directory = output / (f"{name}-{number}" if number > 1 else name)
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        return Night(directory)
    raise BusbarError("there are 999 nights of this minute", where=str(output), hint="wait")


def last(output: Path) -> Night:
    """Return the last night; raise ``BusbarError`` if there is none."""
    found = list(nights(output))
    if not found:
        raise BusbarError(
            "there is no night", where=str(output), hint="omit --resume to start one"
        )
    return found[-1]


def nights(output: Path) -> Iterator[Night]:
    """Yield the nights in the order in which they began; other files are none of ours."""
    found = [each for each in output.iterdir() if _NAME.fullmatch(each.name)]
    for path in sorted(found, key=_order):
        if path.is_dir() and not path.is_symlink():
            yield Night(path)


def _order(path: Path) -> tuple[str, int, str]:
    time, _, number = path.name.partition("Z")
    return time, len(number), number


def finished(output: Path) -> list[tuple[Night, State]]:
    """Return the nights that came to their end, the oldest first."""
    found = []
    for night in nights(output):
        try:
            state = night.load()
        except BusbarError:
            continue  # it may be of another version: leave it alone
        if state.finished:
            found.append((night, state))
    return found


def rotate(output: Path, keep: int) -> Sequence[str]:
    """Remove the oldest finished nights beyond ``keep``; return those that cannot be removed.

    The history is never removed, wherever BUSBAR_HISTORY has put it.
    """
    history = history_directory().resolve()
    problems = []
    for night, _ in finished(output)[:-keep]:
        if history.is_relative_to(night.directory.resolve()):
            problems.append(f"{night.directory}: not removed: the history is in it")
            continue
        try:
            shutil.rmtree(night.directory)
        except OSError as error:
            problems.append(f"{night.directory}: cannot be removed: {error.strerror}")
    return problems
