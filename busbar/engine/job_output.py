# SPDX-License-Identifier: MIT
"""The facts that the output of one run shows, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

from busbar.engine.reading import Evidence, Reading
from busbar.parse.events import Event
from busbar.parse.launch import CommandLine
from busbar.parse.nccl_log import NetPath, Ring
from busbar.parse.ucx_log import Endpoint

MOST_VALUES = 4096
"""Distinct values kept of one kind of message."""
MOST_READINGS = 20_000
MOST_PATHS = 20_000
MOST_HOSTS = 65_536
UNNAMED = "another program"
"""A step that neither a command nor a collector names."""
_E = TypeVar("_E")
_T = TypeVar("_T")


@dataclass
class Occurrence:
    """A message: its fields by name, the first line that has them, and the number of lines."""

    fields: Mapping[str, str]
    evidence: Evidence
    count: int = 1

    def __getitem__(self, name: str) -> str:
        return self.fields[name]


class Setting(NamedTuple):
    """An environment variable that the run had."""

    name: str
    value: str
    evidence: Evidence


class ExitStatus(NamedTuple):
    """The exit status that the job script printed."""

    code: int
    evidence: Evidence


class OutOfBounds(NamedTuple):
    """The line in which a tool counts wrong values."""

    wrong: int
    okay: bool
    evidence: Evidence


@dataclass(frozen=True)
class Device:
    """A GPU that a tool lists."""

    rank: int
    pid: int
    host: str
    device: int
    bus: str
    name: str
    group: int = 0
    """The communicator of several at once."""


class First(list[_T]):
    """A list that keeps the first entries: a text can repeat anything a million times."""

    dropped = 0
    """Entries that were not kept."""

    def append(self, entry: _T, /) -> None:
        """Add an entry, or count it if there are too many."""
        if len(self) < MOST_VALUES:
            super().append(entry)
        else:
            self.dropped += 1

    def __iadd__(self, entries: Iterable[_T], /) -> Self:  # type: ignore[misc, override]
        """Add the entries of another list, and what that did not keep."""
        self.dropped += entries.dropped if isinstance(entries, First) else 0
        return super().__iadd__(entries)


_KNOWN = (
    *("tool", "environment", "exit_status", "endpoints", "transports", "rings", "reports"),
    *("commands", "readings"),
)
"""Fields that show that something was recognised."""
_FIRST_SEEN = (
    *("around", "places", "ends", "rings", "transport_lines", "paths", "reports", "devices"),
)
_ALL_SEEN = (
    *("transports", "commands", "events", "malformed", "contradictions", "launches"),
    *("single_starts", "variables_dropped"),
)
_EITHER = ("exit_status", "incomplete", "complaint", "dropped_from", "ranks")
"""Fields of two outputs that are merged: of one key the own entry counts, all entries, or the own
value if there is one."""


@dataclass
class JobOutput:
    """One run. The collector fills it, the rules read it."""

    files: list[str] = field(default_factory=list)
    tool: str = ""
    step: str = ""
    """A program other than a benchmark that ran alone: its command, or who printed it."""
    version: str | None = None
    names: First[tuple[str, Evidence]] = field(default_factory=First)
    """The collective or test by the output's own words, with the lines."""
    device: str = ""
    """Where the buffers are: ``CUDA``, ``ROCM``, ``GPU`` or ``host``; empty if not shown."""
    buffers: str = ""
    table_seen: bool = False
    """Whether the header of a table or a banner was printed."""
    readings: list[Reading] = field(default_factory=list)
    pending: Evidence | None = None
    """A result row that was cut and never completed."""
    max_bytes: int | None = None
    """The largest size that the tool says it measures."""
    settings: First[tuple[Any, Evidence]] = field(default_factory=First)
    """How the tool says that it measures, in its own terms."""
    parts: dict[type, Any] = field(default_factory=dict)
    """What only a tool itself reads of its output; see `part`."""
    out_of_bounds: OutOfBounds | None = None
    finished: Evidence | None = None
    """The line with which the tool ends its output."""
    redirected: Evidence | None = None
    """The line of a job's standard error after which only others write there, such as Slurm."""
    exit_status: ExitStatus | None = None
    commands: First[tuple[CommandLine, Evidence]] = field(default_factory=First)
    ranks: int | None = None
    launches: First[Evidence] = field(default_factory=First)
    """Each start of the program; more than one in one run are singletons."""
    single_starts: int = 0
    devices: dict[tuple[str, int], Device] = field(default_factory=dict)
    """By host and pid."""
    hosts: dict[str, None] = field(default_factory=dict)
    processes: set[tuple[str, int]] = field(default_factory=set)
    messages: dict[str, dict[tuple[tuple[str, str], ...], Occurrence]] = field(
        default_factory=dict
    )
    """By kind and fields."""
    around: dict[str, list[Evidence]] = field(default_factory=dict)
    """By kind: the first message that is kept in context, and the lines around it."""
    places: dict[str, Evidence] = field(default_factory=dict)
    """By kind: the line of a help text that names the node of the first message."""
    ends: dict[str, str] = field(default_factory=dict)
    """By file: its first and last lines, which show when it was written."""
    environment: dict[str, dict[str, Evidence]] = field(default_factory=dict)
    """Variables that the output shows, each value with the first line."""
    rings: dict[int, tuple[Ring, Evidence]] = field(default_factory=dict)
    transports: Counter[str] = field(default_factory=Counter)
    """Connections by NCCL's name of the transport: ``P2P/CUMEM``, ``SHM/direct/direct``."""
    transport_lines: dict[str, Evidence] = field(default_factory=dict)
    paths: dict[NetPath, Evidence] = field(default_factory=dict)
    endpoints: dict[Endpoint, Occurrence] = field(default_factory=dict)
    events: list[tuple[Event, Evidence]] = field(default_factory=list)
    """JSON lines of our own programs other than readings."""
    malformed: First[tuple[str, Evidence]] = field(default_factory=First)
    """Lines that begin as those and cannot be read, with the reason."""
    reports: dict[str, Evidence] = field(default_factory=dict)
    """Descriptions of the machine in the input, by tool."""
    contradictions: list[tuple[str, Evidence]] = field(default_factory=list)
    """Lines whose numbers or words contradict each other, with the reason."""
    incomplete: Evidence | None = None
    """The line at which the input was cut."""
    complaint: Evidence | None = None
    """The last complaint before the first death, or before the end."""
    variables_dropped: int = 0
    """Variables, or values of them, that were not kept."""
    runs_dropped_from: Evidence | None = None
    """The first line of the runs that follow and are not read."""
    dropped_from: Evidence | None = None
    """The first row that was not kept because there are too many."""
    damage: dict[str, str] = field(default_factory=dict)
    """Why a compressed file could not be read to its end, by file."""

    @property
    def empty(self) -> bool:
        """Whether nothing was recognised."""
        return not (self.messages or self.known)

    @property
    def known(self) -> bool:
        """Whether more was recognised than severe and unclear lines, which any program prints."""
        known = any(getattr(self, name) for name in _KNOWN)
        return known or bool(self.messages.keys() - {"severe", "unclear"})

    @property
    def has_failed(self) -> bool:
        """Whether a message says that a program failed."""
        begins, ends = ("died", "trouble", "severe", "nccl.warn"), (".certain", ".likely")
        return any(kind.startswith(begins) or kind.endswith(ends) for kind in self.messages)

    @property
    def full(self) -> bool:
        """Whether no more readings of the run are kept."""
        return len(self.readings) >= MOST_READINGS

    def part(self, kind: type[_T]) -> _T:
        """Return what the run shows of a kind that a tool has; an empty one if it shows none."""
        found: _T = self.parts.setdefault(kind, kind())
        return found

    def note_device(self, device: Device) -> None:
        """Add a GPU and its process."""
        if len(self.devices) < MOST_HOSTS:
            self.devices[device.host, device.pid * 1024 + device.device] = device
            self.note_process(device.host, device.pid)

    def has_enough(self, kind: str) -> bool:
        """Whether no more messages of a kind are kept."""
        return len(self.messages.get(kind, ())) >= MOST_VALUES

    def counts(self, kind: str, fields: Mapping[str, str]) -> bool:
        """Count a message if an equal one is kept; return False if it must be kept itself."""
        occurrences = self.messages.get(kind)
        if occurrences is None:
            return False
        if mine := occurrences.get(tuple(fields.items())):
            mine.count += 1
            return True
        return len(occurrences) >= MOST_VALUES

    def note_message(
        self, kind: str, evidence: Evidence, fields: Mapping[str, str], count: int = 1
    ) -> None:
        """Count a message; only the first line with the same fields is kept."""
        occurrences = self.messages.setdefault(kind, {})
        key = tuple(fields.items())
        if mine := occurrences.get(key):
            mine.count += count
        elif len(occurrences) < MOST_VALUES:
            occurrences[key] = Occurrence(fields, evidence, count)

    def note_setting(self, name: str, value: str, evidence: Evidence) -> None:
        """Add a variable that the run had; each distinct value is kept once, in order."""
        values = self.environment.get(name, {})
        if value in values:
            return
        if len(self.environment) < MOST_VALUES and len(values) < MOST_VALUES:
            self.environment.setdefault(name, values)[value] = evidence
        else:
            self.variables_dropped += 1

    @property
    def not_kept(self) -> dict[str, int]:
        """What the run repeats more often than is kept, and how often."""
        counts = {
            "starts of the program": self.launches.dropped,
            "commands": self.commands.dropped,
            "variables": self.variables_dropped,
            "names of a test": self.names.dropped,
            "settings of a test": self.settings.dropped,
            "broken events": self.malformed.dropped,
        }
        return {what: count for what, count in counts.items() if count}

    def note_contradiction(self, text: str, evidence: Evidence) -> None:
        """Add a line that contradicts itself."""
        if text and len(self.contradictions) < MOST_VALUES:
            self.contradictions.append((text, evidence))

    def note_process(self, host: str, pid: int) -> None:
        """Add a process that prints."""
        if len(self.processes) < MOST_HOSTS:
            self.hosts.setdefault(host)
            self.processes.add((host, pid))

    def seen(self, kind: str) -> list[Occurrence]:
        """Return all messages of a kind, in the order of their first lines."""
        return list(self.messages.get(kind, {}).values())

    def first(self, kind: str) -> Occurrence | None:
        """Return the first message of a kind."""
        return next(iter(self.messages.get(kind, {}).values()), None)

    def events_of(self, kind: type[_E]) -> list[tuple[_E, Evidence]]:
        """All events of a kind, in order, each with its line."""
        return [(event, line) for event, line in self.events if isinstance(event, kind)]

    def setting(self, *names: str) -> Setting | None:
        """Return the first of ``names`` that the run had set."""
        for name in names:
            for value, evidence in self.environment.get(name, {}).items():
                return Setting(name, value, evidence)
        return None

    def values(self, kind: str, name: str) -> Iterator[str]:
        """Yield one field of every message of a kind."""
        for occurrence in self.seen(kind):
            yield occurrence[name]

    def merge_context(self, other: JobOutput) -> None:
        """Merge a file that is not a run: a debug file, the scheduler's output."""
        for kind, occurrences in other.messages.items():
            for each in occurrences.values():
                self.note_message(kind, each.evidence, each.fields, each.count)
        for name, values in other.environment.items():
            for value, evidence in values.items():
                self.note_setting(name, value, evidence)
        for name in _FIRST_SEEN:
            setattr(self, name, {**getattr(other, name), **getattr(self, name)})
        for name in _ALL_SEEN:
            mine = getattr(self, name)
            mine += getattr(other, name)
            setattr(self, name, mine)
        for name in _EITHER:
            setattr(self, name, getattr(self, name) or getattr(other, name))
        self.hosts = {**self.hosts, **other.hosts}
        self.processes |= other.processes
        self.damage |= other.damage
        for endpoint, occurrence in other.endpoints.items():
            known = self.endpoints.setdefault(endpoint, Occurrence({}, occurrence.evidence, 0))
            known.count += occurrence.count
        self.files += [name for name in other.files if name not in self.files]
