# SPDX-License-Identifier: MIT
"""Expectations as tables for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from busbar.expect.banded import BandedExpectation, few_parameters
from busbar.expect.errors import NoExpectation
from busbar.site.model import Site
from busbar.units import format_bytes

_NUMBERS = ("limit", "low", "typical", "high")


@dataclass(frozen=True)
class Answer:
    """An expectation, or the limit with the reason why there is no band; exactly one is set."""

    expectation: BandedExpectation | None
    refusal: NoExpectation | None

    @property
    def known(self) -> BandedExpectation | NoExpectation:
        """The one that is set."""
        known = self.expectation or self.refusal
        assert known
        return known

    @property
    def nbytes(self) -> int | None:
        """The message size of the band."""
        return self.known.nbytes

    def number(self, name: str) -> float | None:
        """``limit``, ``low``, ``typical`` or ``high`` in the unit."""
        value: float | None = getattr(self.known, name, None)
        return value

    @property
    def counted(self) -> tuple[int, int]:
        """Fitted numbers and readings of the band; none where there is no band."""
        known = self.expectation
        return (known.fitted, known.readings) if known else (0, 0)

    def as_json(self) -> dict[str, Any]:
        """The documented keys: four numbers with their unit, path, sources, and why not."""
        unit = {"GB/s": "gb_per_s", "us": "us"}[self.known.unit]
        numbers = {f"{name}_{unit}": self.number(name) for name in _NUMBERS}
        document = {
            "bytes": self.nbytes,
            **numbers,
            "path": list(self.known.path),
            "sources": list(self.known.sources),
            "proof": self.expectation.proof if self.expectation else "none",
            **counts(*self.counted),
        }
        return document | ({"reason": self.refusal.what} if self.refusal else {})


def counts(fitted: int, readings: int) -> dict[str, int | bool]:
    """How many numbers were fitted to how many readings, and whether those are few, for JSON."""
    return {
        "fitted_parameters": fitted,
        "readings": readings,
        "fewer_than_half_the_readings": few_parameters(fitted, readings),
    }


def counts_line(fitted: int, readings: int) -> str:
    """The same in words."""
    text = f"{fitted} fitted number{'s' * (fitted != 1)} stand{'s' * (fitted == 1)} for"
    text += f" {readings} reading{'s' * (readings != 1)}"
    if few_parameters(fitted, readings):
        return text
    if not readings:
        return f"{text}: the band is its source's own"
    return f"{text}, not fewer than half of them: the band repeats its source, it is no prediction"


def single(site: Site, bench: str, answer: Answer) -> Group:
    """One answer with its path and sources."""
    size = f" at {format_bytes(answer.nbytes)}" if answer.nbytes else ""
    table = Table(title=f"{bench} on {site.name}{size}", title_justify="left")
    for name in _NUMBERS:
        table.add_column(name, justify="right")
    table.add_column("unit")
    table.add_column("proof")
    table.add_row(
        *(_shown(answer.number(name)) for name in _NUMBERS),
        answer.known.unit,
        answer.expectation.proof if answer.expectation else "none",
    )
    lines = [f"path: {text}" for text in answer.known.path]
    lines += [f"source: {text}" for text in answer.known.sources]
    if answer.refusal:
        lines.append(f"no band: {answer.refusal.what}")
    else:
        lines.append(counts_line(*answer.counted))
    return Group(table, *(Text(line) for line in lines))


def matrix_table(site: Site, bench: str, answers: Mapping[tuple[int, int], Answer]) -> Group:
    """All pairs, a row for each sender: typical and limit; then bands, proof and sources."""
    ends = sorted({end for pair in answers for end in pair})
    first = next(iter(answers.values()))
    size = f" at {format_bytes(first.nbytes)}" if first.nbytes else ""
    head = f"{bench} on {site.name}{size}, {first.known.unit}"
    tables = []
    for name in ("typical", "limit"):
        table = Table(title=f"{head}: {name}", title_justify="left")
        table.add_column("from\\to", justify="right", no_wrap=True)
        for end in ends:
            table.add_column(str(end), justify="right", no_wrap=True)
        for src in ends:
            cells = [answers.get((src, dst)) for dst in ends]
            table.add_row(str(src), *(_shown(c.number(name)) if c else "" for c in cells))
        tables.append(table)
    reasons = sorted({answer.refusal.what for answer in answers.values() if answer.refusal})
    proofs = sorted({a.expectation.proof for a in answers.values() if a.expectation})
    bands = sorted(
        {
            f"{_shown(a.expectation.low)} to {_shown(a.expectation.high)}"
            for a in answers.values()
            if a.expectation
        }
    )
    lines = [f"no band: {reason}" for reason in reasons]
    lines += [f"bands: {', '.join(bands)}"] if bands else []
    lines += [f"proof: {', '.join(proofs)}"] if proofs else []
    sources = sorted({source for answer in answers.values() for source in answer.known.sources})
    lines += [f"source: {source}" for source in sources]
    return Group(*tables, *(Text(line) for line in lines))


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if value >= 1000 else f"{value:.3g}"
