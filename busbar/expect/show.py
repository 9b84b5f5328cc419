# SPDX-License-Identifier: MIT
"""Show expectations as terminal tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from busbar.expect.expectation import Expectation, NoExpectation, few_parameters
from busbar.site.model import Site
from busbar.terminal import Group, Table
from busbar.units import format_bytes

_NUMBERS = ("limit", "low", "typical", "high")


@dataclass(frozen=True)
class Answer:
    """An expectation, or a limit with the reason for no band."""

    content: Expectation | NoExpectation

    @property
    def reason(self) -> str:
        """Why there is no band; empty if there is one."""
        return self.content.what if isinstance(self.content, NoExpectation) else ""

    @property
    def proof(self) -> str:
        """How far the band is proven."""
        return getattr(self.content, "proof", "none")

    def number(self, name: str) -> float | None:
        """Return ``limit``, ``low``, ``typical`` or ``high`` in the unit; None without a band."""
        value: float | None = getattr(self.content, name, None)
        return value

    @property
    def evidence(self) -> tuple[int, int]:
        """Counts of the band's fitted numbers and readings; zeros if there is no band."""
        return getattr(self.content, "fitted", 0), getattr(self.content, "readings", 0)

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON keys; ``reason`` only if there is no band."""
        unit = {"GB/s": "gb_per_s", "us": "us"}[self.content.unit]
        document = {
            "bytes": self.content.nbytes,
            **{f"{name}_{unit}": self.number(name) for name in _NUMBERS},
            "path": list(self.content.path),
            "sources": list(self.content.sources),
            "proof": self.proof,
            **counts(*self.evidence),
        }
        return document | ({"reason": self.reason} if self.reason else {})


def counts(fitted: int, readings: int) -> dict[str, int | bool]:
    """Return the JSON keys for the evidence of a band."""
    return {
        "fitted_parameters": fitted,
        "readings": readings,
        "fewer_than_half_the_readings": few_parameters(fitted, readings),
    }


def counts_line(fitted: int, readings: int) -> str:
    """Return the evidence of a band as one sentence."""
    text = f"{fitted} number{'s' * (fitted != 1)} fitted to"
    text += f" {readings} reading{'s' * (readings != 1)}"
    if few_parameters(fitted, readings):
        return text
    if not readings:
        return f"{text}: the source states the band"
    return f"{text}, at least half as many: the band repeats its source and predicts nothing"


def single(site: Site, bench: str, answer: Answer) -> Group:
    """Return the table of one answer, its path and its sources."""
    size = f" at {format_bytes(answer.content.nbytes)}" if answer.content.nbytes else ""
    table = Table(title=f"{bench} on {site.name}{size}", title_justify="left")
    for name in _NUMBERS:
        table.add_column(name, justify="right")
    table.add_column("unit")
    table.add_column("proof")
    table.add_row(
        *(_shown(answer.number(name)) for name in _NUMBERS),
        answer.content.unit,
        answer.proof,
    )
    lines = [f"path: {text}" for text in answer.content.path]
    lines += [f"source: {text}" for text in answer.content.sources]
    lines.append(f"no band: {answer.reason}" if answer.reason else counts_line(*answer.evidence))
    return Group(table, *lines)


def matrix_table(site: Site, bench: str, answers: Mapping[tuple[int, int], Answer]) -> Group:
    """Return the matrices of typical value and limit, a row per sender, and their sources."""
    ends = sorted({end for pair in answers for end in pair})
    first = next(iter(answers.values()))
    size = f" at {format_bytes(first.content.nbytes)}" if first.content.nbytes else ""
    head = f"{bench} on {site.name}{size}, {first.content.unit}"
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
    reasons = sorted({answer.reason for answer in answers.values() if answer.reason})
    banded = [answer for answer in answers.values() if not answer.reason]
    proofs = sorted({answer.proof for answer in banded})
    bands = sorted({f"{_shown(a.number('low'))} to {_shown(a.number('high'))}" for a in banded})
    lines = [f"no band: {reason}" for reason in reasons]
    lines += [f"bands: {', '.join(bands)}"] if bands else []
    lines += [f"proof: {', '.join(proofs)}"] if proofs else []
    sources = sorted({source for answer in answers.values() for source in answer.content.sources})
    lines += [f"source: {source}" for source in sources]
    return Group(*tables, *lines)


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if value >= 1000 else f"{value:.3g}"
