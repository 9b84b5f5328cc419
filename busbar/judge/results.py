# SPDX-License-Identifier: MIT
"""What a check found: one row a reading, as tables, reports and JSON show it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from busbar.expect.expectation import Expectation
from busbar.judge.verdicts import verdict_on
from busbar.units import format_bytes
from busbar.verdict import Verdict, worst

RESULTS_FILE = "results.json"
"""Where a check leaves its outcome in ReFrame's stage directory."""


_SHOWN = 3


@dataclass(frozen=True)
class Result:
    """One reading, or one thing that went wrong, with its verdict."""

    check: str
    verdict: Verdict
    where: str = ""
    """The node or nodes."""
    pair: str = ""
    """``0->1``: ranks or GPUs, from and to; the operation of a collective; empty for a result of
    the whole run."""
    metric: str = ""
    """``bandwidth``, ``busbw``, ``latency`` or ``correctness``."""
    buffers: str = ""
    """``D D``: memory of sender and receiver, D device, H host."""
    bytes: int | None = None
    gb_per_s: float | None = None
    us: float | None = None
    limit: float | None = None
    """In the unit of the reading, as low, typical and high."""
    low: float | None = None
    typical: float | None = None
    high: float | None = None
    cause: str = ""
    """Cause id, or several with commas; empty for a pass."""
    message: str = ""
    """One sentence for a verdict that is not pass."""

    @property
    def value(self) -> float | None:
        """The reading in its own unit."""
        return self.us if self.metric == "latency" else self.gb_per_s

    @property
    def share_of_limit(self) -> float | None:
        """Reading over limit for a bandwidth; a latency has no share."""
        if self.gb_per_s is None or not self.limit:
            return None
        return self.gb_per_s / self.limit


@dataclass(frozen=True)
class Outcome:
    """All results of one check in one environment, and what they were measured with."""

    check: str
    partition: str
    environment: str
    delivery: str
    lane: str
    results: tuple[Result, ...]
    versions: dict[str, str] = field(default_factory=dict)
    """What really ran: ``mpi``, ``ucx``, ``gpu_driver``."""
    causes: tuple[dict[str, Any], ...] = ()
    """As ``busbar explain`` gives them: id, confidence, evidence, remedy."""
    notes: tuple[dict[str, Any], ...] = ()
    nodes: str = ""
    """Slurm's list of the nodes that it ran on; empty without Slurm."""

    @property
    def verdict(self) -> Verdict:
        """The worst of its results; ``failed`` without any."""
        return worst(result.verdict for result in self.results)

    def sentence(self) -> str:
        """The verdict, its first reasons, and the causes with their remedies; for one log line."""
        wrong = list(dict.fromkeys(r.message for r in self.results if r.verdict != Verdict.PASS))
        shown = wrong[:_SHOWN]
        if len(wrong) > _SHOWN:
            shown.append(f"and {len(wrong) - _SHOWN} more")
        text = f"{self.verdict}: {'; '.join(shown)}"
        for cause in self.causes:
            text += f"; cause {cause['id']} ({cause['confidence']})"
            for evidence in cause["evidence"][:1]:
                text += f" [{evidence['file']}:{evidence['line']}: {evidence['text'].strip()}]"
            text += f": {cause['summary']}; {cause['remedy']}"
        return text

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """What :meth:`write` wrote."""
        data = json.loads(path.read_text(encoding="utf-8"))
        data["results"] = tuple(
            Result(**{**row, "verdict": Verdict(row["verdict"])}) for row in data["results"]
        )
        data["causes"], data["notes"] = tuple(data["causes"]), tuple(data["notes"])
        return cls(**data)


def judged(
    check: str, metric: str, value: float, expectation: Expectation, **where: Any
) -> Result:
    """A reading with the verdict that ``expectation`` gives it."""
    return Result(
        check,
        verdict_on(expectation, value),
        metric=metric,
        us=value if metric == "latency" else None,
        gb_per_s=None if metric == "latency" else value,
        limit=expectation.limit,
        low=expectation.low,
        typical=expectation.typical,
        high=expectation.high,
        **where,
    )


def sentence(result: Result) -> str:
    """One line that says what a reading was and what it should have been."""
    unit = "us" if result.metric == "latency" else "GB/s"
    words = (result.pair, result.buffers, format_bytes(result.bytes or 0))
    text = f"{' '.join(word for word in words if word)}: {result.value:.4g} {unit}"
    if result.low is not None:
        text += f", band {result.low:.4g} to {result.high:.4g}"
    return text + (f", limit {result.limit:.4g}" if result.limit is not None else "")
