# SPDX-License-Identifier: MIT
"""An explanation and its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from busbar.documents import CauseRow, ExplainDocument, ReadingRow
from busbar.engine.reading import Evidence, Note, Reading
from busbar.engine.verdicts import Judged
from busbar.redact import redact
from busbar.verdict import Verdict

Confidence = Literal["certain", "likely"]


UNKNOWN_TOOL = "unknown tool"
"""The tool of a text with messages only."""


@dataclass(frozen=True)
class Cause:
    """Why the verdict of a run is not ``pass``."""

    id: str
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    remedy: str
    summary: str = ""
    """The finding in one sentence."""
    details: dict[str, Any] = field(default_factory=dict)
    """Computed values: pairs, NICs, counts."""

    def to_json(self) -> CauseRow:
        """Return the document of a cause; ``details`` only if there are any."""
        document: CauseRow = {
            "id": self.id,
            "confidence": self.confidence,
            "summary": redact(self.summary),
            "evidence": [e.to_json() for e in self.evidence],
            "remedy": self.remedy,
        }
        if self.details:
            document["details"] = self.details
        return document


@dataclass(frozen=True)
class Explanation:
    """One run: what ran, its readings, the verdict, causes and notes."""

    files: tuple[str, ...]
    tool: str
    version: str | None
    ranks: int | None
    nodes: int | None
    readings: tuple[Reading, ...]
    judged: tuple[Judged, ...]
    """The readings but for ``algbw``, and the bus bandwidths that follow from latencies."""
    verdict: Verdict
    causes: tuple[Cause, ...] = ()
    notes: tuple[Note, ...] = ()
    operation: str | None = None
    """The collective or test: ``all_reduce``, ``osu_bw``."""
    site: str | None = None
    """The site whose expectation judged the run; None when no band was applied."""
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    """Libraries that ran beneath the tool, with their versions."""

    def to_json(self) -> ExplainDocument:
        """Return the document that ``busbar explain --json`` prints for a run."""
        return {
            "schema": "busbar-explain/1",
            "files": list(self.files),
            "tool": self.tool,
            "version": self.version,
            "operation": self.operation,
            "site": self.site,
            "ranks": self.ranks,
            "nodes": self.nodes,
            "hosts": list(self.hosts),
            "devices": list(self.devices),
            "readings": self._readings(),
            "verdict": self.verdict,
            "causes": [cause.to_json() for cause in self.causes],
            "notes": [note.to_json() for note in self.notes],
        }

    def _readings(self) -> list[ReadingRow]:
        """Every reading, with its verdict, limit and band if it was judged."""
        judged = {id(each.reading): each for each in self.judged}
        own = {id(reading) for reading in self.readings}
        derived = [each.reading for each in self.judged if id(each.reading) not in own]
        return [_row(reading, judged.get(id(reading))) for reading in (*self.readings, *derived)]


def _row(reading: Reading, judged: Judged | None) -> ReadingRow:
    row = reading.to_json()
    if judged:
        row["verdict"] = judged.verdict
        if judged.limit is not None:
            row["limit"] = judged.limit
        if band := judged.expectation:
            row["low"], row["typical"], row["high"] = band.low, band.typical, band.high
    return row
