# SPDX-License-Identifier: MIT
"""An explanation, which is also its JSON document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from busbar.document import in_json, written
from busbar.engine.reading import Cause, Kind, Note, Reading
from busbar.engine.verdicts import Judged
from busbar.verdict import Verdict

UNKNOWN_TOOL = "unknown tool"
"""The tool of a text with messages only."""


@dataclass(frozen=True)
class ReadingRow:
    """One measured value; ``from`` and ``to`` are the ranks of a pair."""

    bytes: int
    """Message size."""
    gb_per_s: float | None
    """The rate; for a latency, size over time."""
    kind: Kind
    """What ``gb_per_s`` is."""
    wrong: int
    """Wrong elements or bytes that the tool counted; 0 also if it did not check."""
    us: float | None = field(metadata=written(omit=True))
    """Only for a latency."""
    source: int | None = field(metadata=written("from", omit=True))
    target: int | None = field(metadata=written("to", omit=True))
    in_place: bool | None = field(metadata=written(omit=True))
    """For nccl-tests: which half of the row."""
    buffers: str = field(metadata=written(omit=True))
    """Memory of sender and receiver, device or host: ``D D``, ``H D``."""
    operation: str = field(metadata=written(omit=True))
    """What ran, if the run measures several: ``all_reduce``."""
    cpu_wait_share: float | None = field(metadata=written(omit=True))
    """Part of the reading's time in which a rank waited for a CPU; absent if not measured."""
    verdict: Verdict | None = field(default=None, metadata=written(omit=True))
    """Only for a reading that was judged."""
    limit: float | None = field(default=None, metadata=written(omit=True))
    """In the unit of the reading, as low, typical and high; absent if it is not known."""
    low: float | None = field(default=None, metadata=written(omit=True))
    """Start of the band."""
    typical: float | None = field(default=None, metadata=written(omit=True))
    """Typical reading."""
    high: float | None = field(default=None, metadata=written(omit=True))
    """End of the band."""

    @classmethod
    def of(cls, reading: Reading, judged: Judged | None) -> ReadingRow:
        """Return a reading, with its verdict, limit and band if it was judged."""
        band = judged.expectation if judged else None
        return cls(
            reading.nbytes,
            round(reading.gb_per_s, 6),
            reading.kind,
            reading.wrong,
            reading.value if reading.kind == "latency_us" else None,
            reading.source,
            reading.target,
            reading.in_place,
            reading.buffers,
            reading.operation,
            reading.cpu_wait_share,
            *((judged.verdict, judged.limit) if judged else ()),
            *((band.low, band.typical, band.high) if band else ()),
        )


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One run: what ran, what it measured, the verdict and its causes."""

    schema: Literal["busbar-explain/1"] = "busbar-explain/1"
    """The schema of this document."""
    files: tuple[str, ...]
    """Files of the run."""
    tool: str
    """What ran: ``osu_bw``, ``nccl-tests``, ``gpu_aware``; or ``unknown``."""
    step: str = field(default="", metadata=written(omit=True))
    """Another program than a benchmark in the same log: its command, or who printed it."""
    version: str | None
    """Version of the tool or of NCCL."""
    operation: str | None = None
    """The collective or test: ``all_reduce``, ``osu_bw``."""
    site: str | None = None
    """The site whose bands judged the readings."""
    ranks: int | None
    """Ranks of all nodes."""
    nodes: int | None
    """Number of nodes."""
    hosts: tuple[str, ...] = ()
    """Names of the nodes."""
    devices: tuple[str, ...] = ()
    """One line for each GPU."""
    readings: tuple[Reading, ...] = field(metadata=written(hidden=True))
    judged: tuple[Judged, ...] = field(metadata=written(hidden=True))
    """The readings but for ``algbw``, and the bus bandwidths that follow from latencies."""
    libraries: tuple[str, ...] = field(default=(), metadata=written(hidden=True))
    """Libraries that ran beneath the tool, with their versions."""
    verdict: Verdict
    """Verdict of the run."""
    causes: tuple[Cause, ...] = ()
    """Why the run is not a pass."""
    notes: tuple[Note, ...] = ()
    """Facts that are not faults."""

    @property
    @in_json(after="devices", key="readings")
    def rows(self) -> tuple[ReadingRow, ...]:
        """Every reading."""
        judged = {id(each.reading): each for each in self.judged}
        own = {id(reading) for reading in self.readings}
        derived = [each.reading for each in self.judged if id(each.reading) not in own]
        every = (*self.readings, *derived)
        return tuple(ReadingRow.of(reading, judged.get(id(reading))) for reading in every)
