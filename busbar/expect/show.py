# SPDX-License-Identifier: MIT
"""Show expectations as terminal tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from busbar.document import in_json, written
from busbar.expect.expectation import Expectation, NoExpectation
from busbar.plain import Column
from busbar.site.model import Proof, Site
from busbar.terminal import Terminal
from busbar.units import format_bytes

_OUTSIDE = "outside-known-range: never measured; a reading below the band is unjudged"
_NUMBERS = ("limit", "low", "typical", "high")


@dataclass(frozen=True)
class RateNumbers:
    """Limit and band in GB/s."""

    limit_gb_per_s: float | None
    low_gb_per_s: float | None
    typical_gb_per_s: float | None
    high_gb_per_s: float | None


@dataclass(frozen=True)
class LatencyNumbers:
    """Limit and band in us."""

    limit_us: float | None
    low_us: float | None
    typical_us: float | None
    high_us: float | None


@dataclass(frozen=True)
class FitCounts:
    """How well the data supports a band."""

    fitted_parameters: int = 0
    """Numbers of the band that were fitted."""
    readings: int = 0
    """Readings that they were fitted to."""

    @property
    @in_json()
    def fewer_than_half_the_readings(self) -> bool:
        """Whether there are fewer fitted parameters than half the readings."""
        return self.fitted_parameters < self.readings / 2

    @property
    def line(self) -> str:
        """The evidence of a band as one sentence."""
        fitted, readings = self.fitted_parameters, self.readings
        text = f"{fitted} number{'s' * (fitted != 1)} fitted to"
        text += f" {readings} reading{'s' * (readings != 1)}"
        if self.fewer_than_half_the_readings:
            return text
        if not readings:
            return f"{text}: the source states the band"
        return f"{text}, at least half as many: the band repeats its source and predicts nothing"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An expectation, or a limit with the reason for no band."""

    unit: str = field(metadata=written(hidden=True))
    bytes: int | None
    """Message size."""
    numbers: RateNumbers | LatencyNumbers = field(metadata=written(inline=True))
    path: tuple[str, ...]
    """The links that the bytes take; the binding one is marked."""
    sources: tuple[str, ...]
    """Where each number comes from."""
    proof: Proof = "none"
    """How far the band is proven."""
    counts: FitCounts = field(default=FitCounts(), metadata=written(inline=True))
    outside_known_range: bool = False
    """Whether no run of this class was measured: its band does not prove a fault."""
    reason: str = field(default="", metadata=written(omit=True))
    """The reason for a missing band."""

    @classmethod
    def of(cls, content: Expectation | NoExpectation) -> Answer:
        """Return the answer that an expectation is, or the reason for none."""
        kind = LatencyNumbers if content.unit == "us" else RateNumbers
        answer = cls(
            unit=content.unit,
            bytes=content.nbytes,
            numbers=kind(*(getattr(content, name, None) for name in _NUMBERS)),
            path=content.path,
            sources=content.sources,
        )
        if isinstance(content, NoExpectation):
            return replace(answer, reason=content.what)
        counts = FitCounts(content.fitted, content.readings)
        return replace(
            answer, proof=content.proof, counts=counts, outside_known_range=content.outside
        )

    def number(self, name: str) -> float | None:
        """Return ``limit``, ``low``, ``typical`` or ``high`` in the unit; None without a band."""
        unit = "us" if self.unit == "us" else "gb_per_s"
        value: float | None = getattr(self.numbers, f"{name}_{unit}")
        return value


@dataclass(frozen=True, kw_only=True)
class ExpectDocument:
    """The expectation of one benchmark.

    Numbers are in GB/s (1e9 bytes per second), or in us for a latency.
    """

    schema: Literal["busbar-expect/1"] = "busbar-expect/1"
    """The schema of this document."""
    site: str
    """Name of the site."""
    bench: str
    """The benchmark."""
    answer: Answer = field(metadata=written(inline=True))


@dataclass(frozen=True)
class PairAnswer:
    """One ordered pair of GPUs."""

    source: int = field(metadata=written("from"))
    target: int = field(metadata=written("to"))
    answer: Answer = field(metadata=written(inline=True))


@dataclass(frozen=True, kw_only=True)
class MatrixDocument:
    """The expectations of all ordered pairs of GPUs of a node."""

    schema: Literal["busbar-expect/1"] = "busbar-expect/1"
    """The schema of this document."""
    site: str
    """Name of the site."""
    bench: str
    """The benchmark."""
    counts: FitCounts = field(metadata=written(inline=True))
    pairs: tuple[PairAnswer, ...]
    """One row for each ordered pair."""


def single(site: Site, bench: str, answer: Answer) -> Iterator[str]:
    """Yield one answer as a sentence, then its path and its sources."""
    size = f" at {format_bytes(answer.bytes)}" if answer.bytes else ""
    limit, low, typical, high = (_shown(answer.number(name)) for name in _NUMBERS)
    band = "no band is known" if answer.reason else f"typically {typical} ({low} to {high})"
    head = f"{bench} on {site.name}{size}"
    proof = "not tried on this system" if answer.proof == "none" else answer.proof
    yield f"{head}: {band}, limit {limit} {answer.unit}; proof: {proof}"
    yield from (f"path: {text}" for text in answer.path)
    yield from (f"source: {text}" for text in answer.sources)
    if answer.reason:
        yield f"no band: {answer.reason}"
    elif not any(" fitted together to " in text for text in answer.sources):
        yield answer.counts.line
    yield from [_OUTSIDE] if answer.outside_known_range else []


def print_matrix(
    site: Site, bench: str, answers: Mapping[tuple[int, int], Answer], out: Terminal
) -> None:
    """Print the matrices of typical value and limit, a row per sender, and their sources."""
    senders, receivers = (sorted(set(ends)) for ends in zip(*answers, strict=True))
    first = next(iter(answers.values()))
    nbytes = max(answer.bytes or 0 for answer in answers.values())
    size = f" at {format_bytes(nbytes)}" if nbytes else ""
    head = f"{bench} on {site.name}{size}, {first.unit}"
    columns = [Column(""), *(Column(str(end), right=True) for end in receivers)]
    for name in ("typical", "limit"):
        out.line(f"{head}: {name}, from GPU (row) to GPU (column)")
        rows = [[answers.get((src, dst)) for dst in receivers] for src in senders]
        cells = [[_shown(c.number(name)) if c else "" for c in row] for row in rows]
        out.fitted(columns, [[str(e), *row] for e, row in zip(senders, cells, strict=True)])
    reasons = sorted({answer.reason for answer in answers.values() if answer.reason})
    banded = [answer for answer in answers.values() if not answer.reason]
    proofs = sorted({answer.proof for answer in banded})
    bands = sorted({f"{_shown(a.number('low'))} to {_shown(a.number('high'))}" for a in banded})
    lines = [f"no band: {reason}" for reason in reasons]
    lines += [f"bands: {', '.join(bands)}"] if bands else []
    lines += [f"proof: {', '.join(proofs)}"] if proofs else []
    sources = sorted({source for answer in answers.values() for source in answer.sources})
    lines += [f"source: {source}" for source in sources]
    for line in lines:
        out.line(line)


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if value >= 1000 else f"{value:.3g}"
