# SPDX-License-Identifier: MIT
"""The runs of a record: one directory per run, either complete or absent."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from busbar.boundary import replace_file
from busbar.certify.contract import Contract
from busbar.certify.readings import against_nodes
from busbar.check.snapshot import Snapshot, read
from busbar.cluster.nightly import gate
from busbar.cluster.nightly.process import Ended
from busbar.cluster.sweep.document import SweepRun, read_sweep
from busbar.document import Sealed, json_text, read_document
from busbar.engine.results import RESULTS_FILE
from busbar.errors import BusbarError

_T = TypeVar("_T")
_FILE = "run.json"
_HINT = "restore the file, or start a new record"
SWEEP = "sweep.json"
_SIGNALLED = 128


@dataclass(frozen=True, kw_only=True)
class CertifyRun(Sealed):
    """One run of a record, or an event between runs."""

    schema: Literal["busbar-certify-run/1"] = "busbar-certify-run/1"
    """The schema of this document."""
    kind: Literal["begun", "gate", "sweep", "check", "soak", "repaired"]
    """Kind of run; ``begun`` lists all nodes, ``repaired`` the nodes to test again."""
    work: str = ""
    """The check with its parameters and nodes; empty for other kinds."""
    nodes: tuple[str, ...]
    """The nodes that it was started on."""
    missing: tuple[str, ...] = ()
    """For ``begun``: nodes on which Slurm cannot start jobs, with their states."""
    begun: str
    """ISO 8601, UTC."""
    seconds: float = 0.0
    """Duration."""
    status: int = 0
    """Exit status of the command."""
    said: str = ""
    """Its last line on standard error, or the user who began."""


@dataclass(frozen=True)
class Kept:
    """A run with its evidence."""

    directory: Path
    run: CertifyRun
    contract: Contract

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes that it was started on."""
        return frozenset(self.run.nodes)

    @cached_property
    def checked(self) -> Snapshot | None:
        """The results of its checks; None without any."""
        return _or_none(read, self.directory / "check" / RESULTS_FILE)

    @cached_property
    def swept(self) -> SweepRun | None:
        """The verdict of its sweep; None without one."""
        found = _or_none(read_sweep, self.directory / SWEEP)
        return found if isinstance(found, SweepRun) else None

    @cached_property
    def faults(self) -> Mapping[str, str]:
        """The first fault of each node, or of another component."""
        return dict(reversed([*self._faults()]))

    def _faults(self) -> Iterator[tuple[str, str]]:
        gated = gate.read(self.directory / "gate", self.run.nodes)
        if self.run.kind in ("gate", "soak"):
            for node in self.run.nodes:
                if node not in gated:
                    yield node, "the gate did not return a verdict"
                elif gated[node].drain or gated[node].verdict.is_problem:
                    yield node, f"gate: {gate.finding_of(gated[node]).message}"
        if self.swept:
            yield from ((each.node, f"sweep: {each.reason}") for each in self.swept.gone)
            for one in self.swept.accused:
                node = one.id.partition("/")[0]
                yield node if node in self.nodes else one.id, f"sweep: {one.evidence}"
            yield from ((pair, "sweep: wrong data") for pair in self.swept.wrong_data)
        if self.checked:
            yield from against_nodes(self.contract.clauses, self.checked)

    @property
    def measured(self) -> bool:
        """Whether it produced its results."""
        if self.run.kind == "sweep":
            return bool(self.swept and not self.swept.stopped and not self.swept.unmeasured)
        return self.run.kind not in ("check", "soak") or bool(self.checked)


def _or_none(function: Callable[[Path], _T], path: Path) -> _T | None:
    try:
        return function(path)
    except BusbarError:
        return None  # the command left no results; its exit status gives the reason


@dataclass
class Ledger:
    """The runs of a record, in order."""

    directory: Path
    contract: Contract
    kept: list[Kept] = field(default_factory=list)

    @classmethod
    def load(cls, directory: Path, contract: Contract, *, clean: bool = False) -> Ledger:
        """Read the runs; with ``clean``, remove the files of interrupted runs."""
        ledger = cls(directory / "runs", contract)
        for each in sorted(ledger.directory.glob("*")):
            if (each / _FILE).exists():
                run = read_document(each / _FILE, _HINT, CertifyRun)
                ledger.kept.append(Kept(each, run, contract))
            elif clean:
                shutil.rmtree(each)
        return ledger

    def note(
        self,
        kind: Literal["begun", "repaired"],
        nodes: Sequence[str],
        missing: Sequence[str] = (),
        said: str = "",
    ) -> None:
        """Add an event between runs."""
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        event = CertifyRun(kind=kind, nodes=tuple(nodes), begun=begun, said=said)
        self._add(self._next(kind), replace(event, missing=tuple(missing)))

    def run(
        self,
        kind: Literal["gate", "sweep", "check", "soak"],
        work: str,
        nodes: Sequence[str],
        action: Callable[[Path], Ended],
    ) -> Kept | None:
        """Run a command and keep its files; None if it was interrupted."""
        directory = self._next(kind)
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        ended = action(directory)
        if ended.late or ended.status < 0 or ended.status > _SIGNALLED:
            return None
        started = CertifyRun(kind=kind, work=work, nodes=tuple(nodes), begun=begun)
        done = replace(started, seconds=ended.seconds, status=ended.status, said=ended.said)
        return self._add(directory, done)

    def _next(self, kind: str) -> Path:
        directory = self.directory / f"{len(self.kept) + 1:04}-{kind}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        return directory

    def _add(self, directory: Path, run: CertifyRun) -> Kept:
        replace_file(directory / _FILE, json_text(run))
        self.kept.append(Kept(directory, run, self.contract))
        return self.kept[-1]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the record."""
        added = (each.run.nodes for each in self.kept if each.run.kind in ("begun", "repaired"))
        return tuple(dict.fromkeys(node for nodes in added for node in nodes))

    @property
    def missing(self) -> dict[str, str]:
        """The nodes of the partition on which no job could start, with their states."""
        known: dict[str, str] = {}
        for each in self.kept:
            known |= {text.split(" ")[0]: text for text in each.run.missing}
        return {node: text for node, text in known.items() if node not in self.nodes}

    def since_repair(self, node: str) -> list[Kept]:
        """The runs that count for a node: those after its last repair."""
        first = 0
        for n, each in enumerate(self.kept):
            if each.run.kind == "repaired" and node in each.nodes:
                first = n
        return [each for each in self.kept[first:] if node in each.nodes]

    def stands(self, kept: Kept) -> bool:
        """Return whether no node of a run has been repaired since."""
        later = self.kept[self.kept.index(kept) :]
        return not any(each.run.kind == "repaired" and each.nodes & kept.nodes for each in later)

    def against(self, node: str, kinds: Sequence[str] = ()) -> str:
        """Return the first fault of a node since its last repair, in runs of these kinds."""
        for each in self.since_repair(node):
            why = each.faults.get(node, "")
            if why and (not kinds or each.run.kind in kinds):
                return why
        return ""

    @property
    def set_aside(self) -> dict[str, str]:
        """Nodes with a current fault, and the first fault of each."""
        return {node: why for node in self.nodes if (why := self.against(node))}

    @property
    def places(self) -> dict[str, str]:
        """Components other than nodes, such as leaf uplinks, found slow since the last repair."""
        last = max(
            (n for n, each in enumerate(self.kept) if each.run.kind == "repaired"), default=0
        )
        nodes = frozenset(self.nodes)
        return {
            place: why
            for each in self.kept[last:]
            for place, why in each.faults.items()
            if place not in nodes
        }
