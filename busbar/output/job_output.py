# SPDX-License-Identifier: MIT
"""What is known of one run, gathered line by line in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from busbar.output.reading import Evidence, Reading
from busbar.parse import nccl_tests
from busbar.parse.launch import CommandLine
from busbar.parse.nccl_log import NetPath, Ring
from busbar.parse.ucx_log import Endpoint

MOST_VALUES = 4096
"""Distinct values kept of one kind of message."""
MOST_READINGS = 100_000
MOST_PATHS = 200_000
MOST_HOSTS = 65_536


@dataclass
class Occurrence:
    """A message: how often it came and the first line that says it."""

    values: tuple[str, ...]
    evidence: Evidence
    count: int = 1


@dataclass
class JobOutput:
    """One run. Filled by the collector, read by the rules."""

    files: list[str] = field(default_factory=list)
    tool: str = ""
    version: str | None = None
    names: list[tuple[str, Evidence]] = field(default_factory=list)
    """What the output calls its collective or test, with the lines."""
    device: str = ""
    """``CUDA``, ``ROCM``...: where OSU's buffers are; ``host`` when the title says host."""
    buffers: str = ""
    table_seen: bool = False
    """Whether the header of a table or a banner was printed."""
    readings: list[Reading] = field(default_factory=list)
    rows: list[tuple[nccl_tests.Row, Evidence]] = field(default_factory=list)
    pending: Evidence | None = None
    """A result row that never became whole."""
    parameters: nccl_tests.Parameters | None = None
    out_of_bounds: tuple[int, bool, Evidence] | None = None
    finished: Evidence | None = None
    """The line with which the tool ends its output."""
    exit_status: tuple[int, Evidence] | None = None
    commands: list[tuple[CommandLine, Evidence]] = field(default_factory=list)
    ranks: int | None = None
    launches: list[Evidence] = field(default_factory=list)
    """Each start of the program; more than one in one run are singletons."""
    single_starts: int = 0
    devices: dict[tuple[str, int], nccl_tests.Device] = field(default_factory=dict)
    """By host and pid."""
    hosts: dict[str, None] = field(default_factory=dict)
    processes: set[tuple[str, int]] = field(default_factory=set)
    messages: dict[str, dict[tuple[str, ...], Occurrence]] = field(default_factory=dict)
    environment: dict[str, dict[str, Evidence]] = field(default_factory=dict)
    """Variables that the output shows, each value with the first line."""
    rings: dict[int, tuple[Ring, Evidence]] = field(default_factory=dict)
    transports: Counter[str] = field(default_factory=Counter)
    """Connections by NCCL's name of the way: ``P2P/CUMEM``, ``SHM/direct/direct``."""
    transport_lines: dict[str, Evidence] = field(default_factory=dict)
    paths: dict[NetPath, Evidence] = field(default_factory=dict)
    endpoints: dict[Endpoint, Occurrence] = field(default_factory=dict)
    events: list[tuple[dict[str, object], Evidence]] = field(default_factory=list)
    """JSON lines of our own programs other than readings."""
    reports: dict[str, Evidence] = field(default_factory=dict)
    """Descriptions of the machine in the input, by tool."""
    incomplete: Evidence | None = None
    """Where the input shows that it was cut."""

    @property
    def empty(self) -> bool:
        """Whether nothing was recognised."""
        return not (
            self.tool
            or self.messages
            or self.environment
            or self.exit_status
            or self.endpoints
            or self.transports
            or self.rings
            or self.reports
            or self.commands
            or self.readings
        )

    def note_message(self, kind: str, values: tuple[str, ...], evidence: Evidence) -> None:
        """Counts a message; the first line of each distinct content is kept."""
        self._add_message(kind, Occurrence(values, evidence))

    def note_setting(self, name: str, value: str, evidence: Evidence) -> None:
        """A variable that the run had; the last value seen of one name stands last."""
        self.environment.setdefault(name, {}).setdefault(value, evidence)

    def seen(self, kind: str) -> list[Occurrence]:
        """All messages of a kind in the order of their first line."""
        return list(self.messages.get(kind, {}).values())

    def first(self, kind: str) -> Occurrence | None:
        """The first message of a kind."""
        return next(iter(self.messages.get(kind, {}).values()), None)

    def setting(self, *names: str) -> tuple[str, str, Evidence] | None:
        """Name, value and line of the first of ``names`` that the run had set."""
        for name in names:
            for value, evidence in self.environment.get(name, {}).items():
                return name, value, evidence
        return None

    def values(self, kind: str, index: int = 0) -> Iterator[str]:
        """One value of every message of a kind."""
        for seen in self.seen(kind):
            if len(seen.values) > index:
                yield seen.values[index]

    def merge_context(self, other: JobOutput) -> None:
        """Takes over what a file without a run of its own says: debug files, scheduler output."""
        for kind, known in other.messages.items():
            for seen in known.values():
                self._add_message(kind, seen)
        for name, values in other.environment.items():
            for value, evidence in values.items():
                self.note_setting(name, value, evidence)
        self.hosts = {**self.hosts, **other.hosts}
        self.processes |= other.processes
        self.transports.update(other.transports)
        self.rings = {**other.rings, **self.rings}
        self.transport_lines = {**other.transport_lines, **self.transport_lines}
        self.paths = {**other.paths, **self.paths}
        self.reports = {**other.reports, **self.reports}
        for endpoint, seen in other.endpoints.items():
            mine = self.endpoints.setdefault(endpoint, Occurrence((), seen.evidence, 0))
            mine.count += seen.count
        self.devices = {**other.devices, **self.devices}
        self.commands += other.commands
        self.launches += other.launches
        self.single_starts += other.single_starts
        self.exit_status = self.exit_status or other.exit_status
        self.incomplete = self.incomplete or other.incomplete
        self.ranks = self.ranks or other.ranks
        self.files += [name for name in other.files if name not in self.files]

    def _add_message(self, kind: str, seen: Occurrence) -> None:
        known = self.messages.setdefault(kind, {})
        if mine := known.get(seen.values):
            mine.count += seen.count
        elif len(known) < MOST_VALUES:
            known[seen.values] = Occurrence(seen.values, seen.evidence, seen.count)
