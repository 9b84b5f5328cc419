# SPDX-License-Identifier: MIT
"""The directory of one night, its stages, its text for mail, and the rotation of old nights."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from busbar.boundary import one_line, replace_file
from busbar.data import history_directory
from busbar.document import Contradictions, Sealed, in_json, read_document, written
from busbar.errors import BusbarError
from busbar.redact import redact
from busbar.seal import sealed
from busbar.slurm.hostlist import fold, natural
from busbar.units import CLOCKS_S, outside, past
from busbar.verdict import Verdict, worst
from busbar.words import repeated

StageName = Literal["gate", "sweep", "check", "sample"]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""In the order in which they run."""
_STATE = "night.json"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{4}Z(?:-\d+)?", re.ASCII)
_HINT = "not the state of a night: start a new one without --resume"


@dataclass(frozen=True)
class NightFinding:
    """The result of a stage for a node or another part that it names."""

    where: str
    """A node, several with commas, or what a sweep accuses."""
    verdict: Verdict
    """Verdict on it."""
    message: str
    """Why; empty for a pass."""


@dataclass(frozen=True)
class NightStage:
    """One stage of a night."""

    name: StageName
    """``sample`` is the nightly set on some nodes, a part of the stage ``check``."""
    verdict: Verdict
    """``not run`` if it left no verdict."""
    message: str
    """One sentence."""
    finished: bool
    """Whether it came to its end; ``--resume`` repeats the others."""
    begun: str = ""
    """ISO 8601, UTC; empty if it did not begin."""
    seconds: float = 0.0
    """How long it took."""
    nodes: tuple[str, ...] = ()
    """The nodes that it was started on."""
    findings: tuple[NightFinding, ...] = ()
    """For the gate, every node; otherwise the findings, at most 1,000 for the checks."""
    left_out: tuple[str, ...] = field(default=(), metadata=written(hidden=True))
    """The nodes that later stages leave out."""


@dataclass(frozen=True, kw_only=True)
class NightlyDocument(Sealed):
    """The verdict of a night."""

    # The file that a resumed night begins with has the hidden ones as well.
    schema: Literal["busbar-nightly/1"] = "busbar-nightly/1"
    """The schema of this document."""
    site: str
    """Name of the site."""
    partition: str
    """Partition of the site."""
    begun: str
    """ISO 8601, UTC."""
    names: tuple[StageName, ...] = field(metadata=written(hidden=True))
    """The stages of the night, in their order."""
    stages: tuple[NightStage, ...] = ()
    """The stages in their order."""
    unusable: tuple[str, ...] = ()
    """Nodes that Slurm starts no job on, with their state."""
    interrupted: str | None = None
    """The signal that ended the night; null if none did."""
    report: str = ""
    """The first page of the report; empty without one."""
    output: str
    """Directory of the night."""
    summary: tuple[str, ...] = field(default=(), metadata=written(hidden=True))
    """The lines of the summary that the report printed."""
    records: tuple[str, ...] = field(default=(), metadata=written(hidden=True))
    """The nodes that are not healthy, and what to do next."""
    finished: bool = field(default=False, metadata=written(hidden=True))
    """Whether the night came to its end; --max-hours is one."""

    def contradictions(self) -> Contradictions:
        """Yield each key that contradicts others, or has an impossible value."""
        begun = past(self.begun, "begun")
        if {stage.name for stage in self.stages} - {*self.names} or [*repeated(self.names)]:
            yield "names", "has a stage twice, or lacks one that has begun"
        for at in repeated(stage.name for stage in self.stages):
            yield f"stages.{at}.name", "is listed twice"
        for at, stage in enumerate(self.stages):
            key, bad = f"stages.{at}", [one for one in stage.findings if one.verdict.is_problem]
            if bad and not stage.verdict.is_problem:
                yield f"{key}.verdict", f"is {stage.verdict}, but {bad[0].where} {bad[0].verdict}"
            yield from ((f"{key}.{name}", what) for name, what in outside(stage, {"seconds": 1e7}))
            if stage.begun and past(stage.begun, f"{key}.begun") < begun - CLOCKS_S:
                yield f"{key}.begun", f"is {stage.begun}, before the night"
            if "" in stage.nodes or [*repeated(stage.nodes)]:
                yield f"{key}.nodes", "has a node twice, or one without a name"
            if {*stage.left_out} - {*stage.nodes}:
                yield f"{key}.left_out", "has a node on which the stage did not run"

    @property
    @in_json(after="begun")
    def verdict(self) -> Verdict:
        """The worst of the stages; a stage that is missing did not run."""
        missing = set(self.names) - {stage.name for stage in self.stages}
        return worst(
            [*(stage.verdict for stage in self.stages), *(Verdict.NOT_RUN for _ in missing)]
        )

    @property
    @in_json(after="stages")
    def left_out(self) -> list[str]:
        """Nodes that failed the gate, which later stages left out."""
        return sorted({node for stage in self.stages for node in stage.left_out})

    def stage(self, name: str) -> NightStage | None:
        """Return what came of a stage; None if it has not begun."""
        return next((stage for stage in self.stages if stage.name == name), None)

    def with_stage(self, stage: NightStage) -> NightlyDocument:
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

    def load(self) -> NightlyDocument:
        """Return the state; raise ``BusbarError`` if the file does not contain one."""
        return read_document(self.path(_STATE), _HINT, NightlyDocument)

    def save(self, state: NightlyDocument) -> None:
        """Write the state as a whole or not at all."""
        replace_file(self.path(_STATE), json.dumps(sealed(asdict(state)), indent=1) + "\n")


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
    raise BusbarError("has 999 nights with this time", where=str(output), hint="wait")


def last(output: Path) -> Night:
    """Return the last night; raise ``BusbarError`` if there is none."""
    found = list(nights(output))
    if not found:
        hint = "omit --resume to start one"
        raise BusbarError("no night to resume", where=str(output), hint=hint)
    return found[-1]


def nights(output: Path) -> Iterator[Night]:
    """Yield the nights in the order in which they began; other files are ignored."""
    found = [each for each in output.iterdir() if _NAME.fullmatch(each.name)]
    for path in sorted(found, key=lambda path: natural(path.name)):
        if path.is_dir() and not path.is_symlink():
            yield Night(path)


def finished(output: Path) -> list[tuple[Night, NightlyDocument]]:
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


_MOST = 10
"""Findings of one stage in the summary."""


def summary(night: Night, state: NightlyDocument) -> list[str]:
    """Return the text for mail: verdict, stages, nodes that were not tested, the report's text."""
    return [one_line(redact(line)) for line in _lines(night, state)]


def _lines(night: Night, state: NightlyDocument) -> Iterator[str]:
    yield f"busbar nightly: {state.site}, partition {state.partition}: {state.verdict}"
    for name in state.names:
        stage = state.stage(name)
        if stage is None:
            yield f"{name}: {Verdict.NOT_RUN}: {why_missing(state)}"
            continue
        took = f" ({stage.seconds:.0f} s)" if stage.begun else ""
        yield f"{name}: {stage.verdict}: {stage.message}{took}"
        wrong = [each for each in stage.findings if each.verdict.is_problem]
        if len(wrong) > 1:
            yield from (f"  {_text(each)}" for each in wrong[:_MOST])
        if len(wrong) > _MOST:
            yield f"  and {len(wrong) - _MOST} more"
    if state.left_out:
        yield f"failed the gate, not tested further: {fold(sorted(state.left_out))}"
    yield from (f"not tested: {node}" for node in state.unusable[:_MOST])
    if len(state.unusable) > _MOST:
        yield f"not tested: {len(state.unusable) - _MOST} more"
    yield from state.records
    if state.interrupted:
        yield f"{state.interrupted} ended the night; --resume continues it"
    if state.summary:
        yield ""
        yield from state.summary
        yield ""
    yield f"report: {state.report}" if state.report else f"no report; logs: {night.directory}"


def why_missing(state: NightlyDocument) -> str:
    """Return why a stage has no result."""
    return f"{state.interrupted} ended the night before it" if state.interrupted else "no result"


def _text(finding: NightFinding) -> str:
    return ": ".join(filter(None, (finding.where, finding.verdict, finding.message)))
