# SPDX-License-Identifier: MIT
"""What a check found: one row a reading, as tables, reports and JSON show it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import isfinite
from pathlib import Path

from busbar.document import in_json, parse_document, to_json
from busbar.engine.reading import Cause, Note
from busbar.engine.verdicts import Judged
from busbar.parse import numbers
from busbar.site.calibration import SeriesKey
from busbar.units import format_bytes
from busbar.verdict import Verdict, combined

RESULTS_FILE = "results.json"
"""Where a check leaves its outcome in ReFrame's stage directory."""
DIGEST = "outcome_digest"
"""The check's variable that distinguishes its file from those of other tests or runs."""


def digest_of(file: Path) -> str:
    """Return the SHA-256 of an outcome that was left."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


_SHOWN = 3
_LEAST_US = 0.01
"""Shorter times than this are the transfer of a few bytes by the rate of a link."""
_METRICS = {"bw": "bandwidth", "busbw": "busbw", "latency_us": "latency"}


@dataclass(frozen=True)
class Result:
    """One reading, or one thing that went wrong, with its verdict."""

    check: str
    """Check and its parameters."""
    verdict: Verdict
    """Verdict of the reading."""
    where: str = ""
    """The node or nodes."""
    pair: str = ""
    """``0->1`` (ranks or GPUs), the operation of a collective, or empty for the whole run."""
    metric: str = ""
    """``bandwidth``, ``busbw``, ``latency`` or ``correctness``."""
    buffers: str = ""
    """Memory of sender and receiver, device or host: ``D D``, ``H D``."""
    bytes: int | None = None
    """Message size."""
    gb_per_s: float | None = None
    """The reading, unless it is a latency."""
    us: float | None = None
    """The reading if it is a latency."""
    limit: float | None = None
    """In the unit of the reading, as low, typical and high."""
    low: float | None = None
    """Start of the band."""
    typical: float | None = None
    """Typical reading."""
    high: float | None = None
    """End of the band."""
    calibrated: bool = False
    """Whether the band is the site's own calibration."""
    model: float | None = None
    """What links and family call typical if it is."""
    cpu_wait_share: float | None = None
    """Part of the reading's time in which a rank waited for a CPU; null if not measured."""
    cause: str = ""
    """Cause ids, separated by commas; empty for a pass."""
    message: str = ""
    """One sentence if the verdict is not pass."""
    series: SeriesKey | None = None
    """The series of the reading; null if the row is not a reading."""

    @property
    def value(self) -> float | None:
        """The reading in its own unit."""
        return self.us if self.metric == "latency" else self.gb_per_s

    @property
    def unit(self) -> str:
        """The unit of the reading."""
        return "us" if self.metric == "latency" else "GB/s"

    @property
    def shown_limit(self) -> float | None:
        """The limit to display; a latency limit of picoseconds is not informative."""
        tiny = self.metric == "latency" and (self.limit or 0) < _LEAST_US
        return None if tiny else self.limit

    @property
    def band_text(self) -> str:
        """The band for people; empty without one."""
        if self.low is None or self.high is None:
            return ""
        if self.metric == "latency" and self.low < _LEAST_US:
            return f"up to {self.high:.4g}"
        return f"{self.low:.4g} .. {self.high:.4g}"

    @property
    @in_json()
    def share_of_limit(self) -> float | None:
        """Reading over limit; null for a latency."""
        if self.gb_per_s is None or not self.limit:
            return None
        return self.gb_per_s / self.limit


@dataclass(frozen=True)
class Outcome:
    """All results of one check in one environment, and what they were measured with."""

    check: str
    lane: str
    results: tuple[Result, ...]
    partition: str = ""
    environment: str = ""
    delivery: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    """What really ran: ``mpi``, ``ucx``, ``gpu_driver``."""
    causes: tuple[Cause, ...] = ()
    """As ``busbar explain`` gives them: id, confidence, evidence, remedy."""
    notes: tuple[Note, ...] = ()
    nodes: str = ""
    """Slurm's list of the nodes that it ran on; empty without Slurm."""
    provenance: dict[str, str] = field(default_factory=dict)
    """What the nodes that measured say of themselves, and what was delivered to them: ``driver``,
    ``lock.libfabric``..."""

    @classmethod
    def failed(cls, check: str, lane: str, message: str) -> Outcome:
        """Return the outcome of a check that never came to its own judgement."""
        return cls(check, lane, (Result(check, Verdict.FAILED, message=message),))

    @cached_property
    def verdict(self) -> Verdict:
        """Return the verdict of the check by its results; ``failed`` without any."""
        found = combined(result.verdict for result in self.results)
        measured = [row for row in self.results if row.value is not None]
        compared = any(row.verdict is not Verdict.UNJUDGED for row in measured)
        # Correct data does not judge the rates that a check measured.
        return Verdict.UNJUDGED if found is Verdict.PASS and measured and not compared else found

    def sentence(self) -> str:
        """The verdict, its first reasons, and the causes with their remedies; for one log line."""
        wrong = list(dict.fromkeys(r.message for r in self.results if r.verdict.is_problem))
        shown = wrong[:_SHOWN]
        if len(wrong) > _SHOWN:
            shown.append(f"and {len(wrong) - _SHOWN} more")
        text = f"{self.verdict}: {'; '.join(shown)}"
        for cause in self.causes:
            text += f"; cause {cause.id} ({cause.confidence})"
            for line in cause.evidence[:1]:
                text += f" [{line.file}:{line.line}: {line.text.strip()}]"
            text += f": {cause.summary}; {cause.remedy}"
        return text

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(to_json(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """Read what :meth:`write` wrote; raise ``ValueError`` for anything else."""
        try:
            document = numbers.load_json(path.read_text(encoding="utf-8"))
            outcome = parse_document(cls, document)
        except ValueError as error:
            raise ValueError(f"{path.name}, {error}") from error
        if document.keys() - {each.name for each in fields(cls)}:
            raise ValueError(f"{path.name} has keys that no outcome has")
        return outcome


_DOUBT = (
    ", more than the links carry: if the reading is right, correct links, host_link, nics or"
    " multicast of the node type in site.yaml"
)


def result_of(judged: Judged, row: Result) -> Result:
    """Complete the row of a judged reading; ``row`` says where and between what it was taken."""
    reading, band = judged.reading, judged.expectation
    latency = reading.kind == "latency_us"
    result = replace(
        row,
        verdict=judged.verdict,
        metric=_METRICS[reading.kind],
        us=reading.value if latency else None,
        gb_per_s=None if latency else reading.value,
        limit=judged.limit if judged.limit is not None and isfinite(judged.limit) else None,
        low=band.low if band else None,
        typical=band.typical if band else None,
        high=band.high if band else None,
        calibrated=bool(band and band.calibrated),
        model=band.model if band else None,
        cpu_wait_share=reading.cpu_wait_share,
        bytes=reading.nbytes,
    )
    if not judged.verdict.is_problem:
        return result
    on_gpus = reading.kind == "busbw" or "D" in reading.buffers
    doubtful = judged.verdict is Verdict.IMPOSSIBLE and not latency and on_gpus
    return replace(result, message=sentence(result) + (_DOUBT if doubtful else ""))


def sentence(result: Result) -> str:
    """One line that says what a reading was and what it should have been."""
    words = (result.pair, result.buffers, format_bytes(result.bytes or 0))
    text = f"{' '.join(word for word in words if word)}: {result.value:.4g} {result.unit}"
    if result.band_text:
        text += f", band {result.band_text}"
    return text + (f", limit {result.shown_limit:.4g}" if result.shown_limit is not None else "")
