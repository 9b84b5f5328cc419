# SPDX-License-Identifier: MIT
"""What an explanation holds, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from busbar.output.reading import Evidence, Reading
from busbar.redact import redact
from busbar.verdict import Verdict

Confidence = Literal["certain", "likely"]


@dataclass(frozen=True)
class Cause:
    """Why a run is not ``pass``."""

    id: str
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    remedy: str
    summary: str = ""
    """What was found here, in one sentence."""
    details: dict[str, Any] = field(default_factory=dict)
    """What was computed: pairs, NICs, counts."""

    def to_json(self) -> dict[str, Any]:
        """The contract's keys, ``summary``, and ``details`` where there are any."""
        document: dict[str, Any] = {
            "id": self.id,
            "confidence": self.confidence,
            "summary": redact(self.summary),
            "evidence": [e.to_json() for e in self.evidence],
            "remedy": self.remedy,
        }
        return document | ({"details": self.details} if self.details else {})


@dataclass(frozen=True)
class Note:
    """A fact worth knowing that is no fault."""

    id: str
    summary: str
    evidence: tuple[Evidence, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As a cause, without confidence and remedy."""
        document: dict[str, Any] = {
            "id": self.id,
            "summary": redact(self.summary),
            "evidence": [e.to_json() for e in self.evidence],
        }
        return document | ({"details": self.details} if self.details else {})


@dataclass(frozen=True)
class Explanation:
    """One run: what it was, what it measured, how it is judged and why."""

    files: tuple[str, ...]
    tool: str
    version: str | None
    ranks: int | None
    nodes: int | None
    readings: tuple[Reading, ...]
    verdict: Verdict
    causes: tuple[Cause, ...] = ()
    notes: tuple[Note, ...] = ()
    operation: str | None = None
    """The collective or test: ``all_reduce``, ``osu_bw``."""
    site: str | None = None
    """The site whose expectation judged the run; None when no band was applied."""
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document that ``busbar explain --json`` prints for a run."""
        return {
            "files": list(self.files),
            "tool": self.tool,
            "version": self.version,
            "operation": self.operation,
            "site": self.site,
            "ranks": self.ranks,
            "nodes": self.nodes,
            "hosts": list(self.hosts),
            "devices": list(self.devices),
            "readings": [reading.to_json() for reading in self.readings],
            "verdict": str(self.verdict),
            "causes": [cause.to_json() for cause in self.causes],
            "notes": [note.to_json() for note in self.notes],
        }
