# SPDX-License-Identifier: MIT
"""Measured values, causes and notes of a run, and the line of the input that proves each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from busbar.document import written
from busbar.redact import redact

Confidence = Literal["certain", "likely"]
Kind = Literal["bw", "busbw", "algbw", "latency_us"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of the input that shows something."""

    file: str
    """File of the input."""
    line: int
    """Counted from 1."""
    text: str = field(metadata=written(by=redact))
    """The line, without secrets."""

    def is_before(self, other: Evidence) -> bool:
        """Return whether it precedes another line of the same file."""
        return self.file == other.file and self.line < other.line


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value.

    ``value`` is GB/s (1e9 bytes a second), or us when ``kind`` is ``latency_us``.
    """

    kind: Kind
    nbytes: int
    value: float
    wrong: int = 0
    """Wrong elements or bytes that the tool counted; also 0 if it did not check."""
    evidence: Evidence | None = None
    source: int | None = None
    target: int | None = None
    """Ranks of a pair, where the tool names them."""
    in_place: bool | None = None
    """Which half of a row, where a tool measures in place and out of place."""
    buffers: str = ""
    """``D D``, ``H D``..., where the tool names them."""
    operation: str = ""
    """What ran, where one run measures several: ``all_reduce``."""
    driver_us: float | None = None
    """Beside a latency between GPUs: the shortest copy within a GPU."""
    memory_gb_per_s: float | None = None
    """Beside a copy within a GPU: what its memory carries, reading and writing together."""
    measured_us: float | None = None
    """How long the tool measured, if it reports this."""
    cpu_wait_share: float | None = None
    """The part of the time in which a rank was ready to run without a CPU, where that is known."""

    @property
    def gb_per_s(self) -> float:
        """The rate; for a latency the size over the time, which is what it moved."""
        if self.kind == "latency_us":
            return self.nbytes / self.value * 1e-3 if self.value > 0 else 0.0
        return self.value


@dataclass(frozen=True)
class Note:
    """A fact worth knowing that is not a fault."""

    id: str
    """Stable; docs/reference/causes.md lists them."""
    summary: str = field(metadata=written(by=redact))
    """What was found, in one sentence."""
    evidence: tuple[Evidence, ...] = ()
    """The lines that show it."""
    details: dict[str, Any] = field(default_factory=dict, metadata=written(omit=True))
    """Computed values; the keys depend on the id."""


@dataclass(frozen=True)
class Consequence:
    """What failed because of a cause: on other ranks, or when the run ended."""

    id: str
    """The cause that it indicates on its own."""
    summary: str = field(metadata=written(by=redact))
    """What was found, in one sentence."""
    evidence: tuple[Evidence, ...]
    """The lines that show it."""
    time: str = field(default="", metadata=written(omit=True))
    """When, as the line says it."""


@dataclass(frozen=True)
class Cause:
    """Why a run is not a pass."""

    id: str
    """Stable; docs/reference/causes.md lists them."""
    confidence: Confidence
    """``certain`` if the output proves it."""
    summary: str = field(metadata=written(by=redact))
    """What was found, in one sentence."""
    evidence: tuple[Evidence, ...]
    """The lines that show it."""
    remedy: str
    """What to do."""
    details: dict[str, Any] = field(default_factory=dict, metadata=written(omit=True))
    """Computed values; the keys depend on the id."""
    rank: int | None = field(default=None, metadata=written(omit=True))
    """The rank that failed, as all that follows only if the input shows it."""
    pid: int | None = field(default=None, metadata=written(omit=True))
    """Its process."""
    host: str = field(default="", metadata=written(omit=True))
    """The node of that rank, or the one that printed the line."""
    gpu: str = field(default="", metadata=written(omit=True))
    """Its index on the node, or its PCI address."""
    nic: str = field(default="", metadata=written(omit=True))
    """A network device that the line names."""
    time: str = field(default="", metadata=written(omit=True))
    """When, as the line says it."""
    consequences: tuple[Consequence, ...] = field(default=(), metadata=written(omit=True))
    """What failed because of it."""


_Said = TypeVar("_Said", Note, Cause)


def redacted(said: _Said) -> _Said:
    """Return it without secrets, for those who show it without writing JSON."""
    lines = tuple(replace(line, text=redact(line.text)) for line in said.evidence)
    return replace(said, summary=redact(said.summary), evidence=lines)
