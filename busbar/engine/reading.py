# SPDX-License-Identifier: MIT
"""Measured values and other facts of a run, and the line of the input that proves each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from busbar.documents import EvidenceRow, NoteRow, ReadingRow
from busbar.redact import redact

Kind = Literal["bw", "busbw", "algbw", "latency_us"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of the input; its text is redacted when it leaves in JSON or on the terminal."""

    file: str
    line: int
    text: str

    def to_json(self) -> EvidenceRow:
        """``file``, ``line`` (from 1) and ``text``."""
        return {"file": self.file, "line": self.line, "text": redact(self.text)}


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value.

    ``value`` is GB/s (1e9 bytes a second), or us when ``kind`` is ``latency_us``.
    """

    kind: Kind
    nbytes: int
    value: float
    wrong: int = 0
    """Wrong elements or bytes that the tool counted; 0 as well where it did not check."""
    evidence: Evidence | None = None
    source: int | None = None
    target: int | None = None
    """Ranks of a pair, where the tool names them."""
    in_place: bool | None = None
    """For nccl-tests: which half of the row."""
    buffers: str = ""
    """``D D``, ``H D``..., where the tool names them."""
    operation: str = ""
    """What ran, where one run measures several: ``all_reduce``."""
    driver_us: float | None = None
    """Beside a latency of ``gpu_aware``: the shortest copy within a GPU."""
    memory_gb_per_s: float | None = None
    """Beside a copy within a GPU: what its memory carries, reading and writing together."""
    measured_us: float | None = None
    """How long the tool measured, where it says so."""
    cpu_wait_share: float | None = None
    """The part of the time in which a rank was ready to run without a CPU, where that is known."""

    @property
    def gb_per_s(self) -> float:
        """The rate; for a latency the size over the time, which is what it moved."""
        if self.kind == "latency_us":
            return self.nbytes / self.value * 1e-3 if self.value > 0 else 0.0
        return self.value

    def to_json(self) -> ReadingRow:
        """The contract's keys, then those of them that are known here."""
        document: ReadingRow = {
            "bytes": self.nbytes,
            "gb_per_s": round(self.gb_per_s, 6) if math.isfinite(self.gb_per_s) else None,
            "kind": self.kind,
            "wrong": self.wrong,
        }
        if self.kind == "latency_us":
            document["us"] = self.value if math.isfinite(self.value) else None
        if self.source is not None:
            document["from"] = self.source
        if self.target is not None:
            document["to"] = self.target
        if self.in_place is not None:
            document["in_place"] = self.in_place
        if self.buffers:
            document["buffers"] = self.buffers
        if self.operation:
            document["operation"] = self.operation
        if self.cpu_wait_share is not None:
            document["cpu_wait_share"] = self.cpu_wait_share
        return document


@dataclass(frozen=True)
class Note:
    """A fact worth knowing; its id has an entry in ``busbar/explain/causes.yaml``."""

    id: str
    summary: str
    evidence: tuple[Evidence, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> NoteRow:
        """Return the keys of a cause, without confidence and remedy."""
        document: NoteRow = {
            "id": self.id,
            "summary": redact(self.summary),
            "evidence": [e.to_json() for e in self.evidence],
        }
        if self.details:
            document["details"] = self.details
        return document
