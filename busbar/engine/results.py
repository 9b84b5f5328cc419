# SPDX-License-Identifier: MIT
"""What a check found: one row a reading, as tables, reports and JSON show it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from math import isfinite
from pathlib import Path

from busbar.document import Contradictions, in_json, parse_document, to_json
from busbar.engine.reading import Cause, Kind, Note, Reading
from busbar.engine.verdicts import GUESS, Judged, verdict_on, without_band
from busbar.expect.expectation import Expectation, NoExpectation
from busbar.parse import numbers
from busbar.site.calibration import SeriesKey
from busbar.units import format_bytes, outside
from busbar.verdict import Verdict, combined

RESULTS_FILE = "results.json"
"""Where a check leaves its outcome in ReFrame's stage directory."""
DIGEST = "outcome_digest"
"""The check's variable that distinguishes its file from those of other tests or runs."""


def digest_of(file: Path) -> str:
    """Return the SHA-256 of an outcome that was left."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


_SHOWN = 3
_LEAST_US, _MOST_GB_PER_S = 0.01, 1e6
"""A shorter time is the transfer of a few bytes by the rate of a link; no cluster has the rate."""
_METRICS: Mapping[Kind, str] = {"bw": "bandwidth", "busbw": "busbw", "latency_us": "latency"}
_KINDS = {metric: kind for kind, metric in _METRICS.items()}
_KEYS = dict.fromkeys(("", "correctness"), "") | dict.fromkeys(_KINDS, "gb_per_s")
_KEYS["latency"] = "us"
"""The metrics, and the key of the reading of each; empty for those without a reading."""
_MOST = {"cpu_wait_share": 1, "bytes": 1 << 50, "limit": 1e9, "high": 1e9, "model": 1e9}
_ALSO = {
    # A floor or a band that is a guess; a busy machine.
    *((Verdict.UNJUDGED, judged) for judged in (Verdict.PASS, Verdict.DEGRADED)),
    *((Verdict.UNKNOWN, judged) for judged in (Verdict.DEGRADED, Verdict.IMPOSSIBLE)),
}
"""Verdicts of a check that differ from those that band and limit alone give a reading."""


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

    def contradictions(self) -> Contradictions:
        """Yield each key that contradicts others, is unknown, or has an impossible value."""
        if self.metric not in _KEYS:
            yield "metric", f"must be one of {', '.join(_KEYS).strip(', ')}, got {self.metric!a}"
            return
        for name in {"us", "gb_per_s"} - {_KEYS[self.metric]}:
            if getattr(self, name) is not None:
                yield name, f"is not a reading of {self.metric or 'a message'}"
        yield from outside(self, _MOST)
        for name in ("cause", "message"):
            if getattr(self, name) and not self.verdict.is_problem:
                yield name, f"contradicts the verdict {self.verdict}"
        if self.value is not None:
            yield from self._of_reading(self.value)
        elif self.low or (self.metric != "correctness" and not self.verdict.is_problem):
            yield (
                _KEYS[self.metric] or "metric",
                f"lacks the reading of the verdict {self.verdict}",
            )

    def _of_reading(self, value: float) -> Contradictions:
        """Yield what contradicts the reading: its band, its verdict, and its series."""
        names = ["low", "typical", "high"]
        names.insert(0 if self.unit == "us" else 3, "limit")
        known = [(name, each) for name in names if (each := getattr(self, name)) is not None]
        for (before, least), (name, each) in pairwise([("0", 0), *known]):
            if not least <= each:
                yield name, f"is {each:g}, less than {before}{f', {least:g}' * bool(least)}"
        if self.verdict is Verdict.PASS and not (self.low and self.high and self.bytes):
            yield "verdict", "is pass without a band or a size"
            return
        judged = self._judged(value)
        failed = self.verdict is Verdict.FAILED and self.message  # such as wrong data
        fits = self.verdict is judged or (self.verdict, judged) in _ALSO
        if judged is Verdict.DEGRADED and self.verdict is Verdict.UNJUDGED:
            fits = self.unit != "us" and value >= (self.low or 0) * GUESS
        if not fits and not failed:
            yield "verdict", f"is {self.verdict}, but {sentence(self)} is {judged}"
        if self.series:
            own = (_KINDS[self.metric], self.bytes)
            if own != (self.series.kind, self.series.bytes):
                yield "series", f"has kind or bytes of another reading than {own}"

    def _judged(self, value: float) -> Verdict:
        """Judge the reading again, by the band and the limit of its row."""
        limit = self.limit
        if limit is None:
            limit = _LEAST_US if self.unit == "us" else _MOST_GB_PER_S
        if self.low is None or self.high is None:
            reading = Reading(_KINDS[self.metric], self.bytes or 0, value)
            return without_band(reading, NoExpectation("", limit=limit, unit=self.unit)).verdict
        band = Expectation(limit, self.low, self.typical or self.low, self.high, unit=self.unit)
        return verdict_on(band, value)

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


def verdict_of(results: Iterable[Result]) -> Verdict:
    """Return the verdict of a check by its results; ``failed`` without any."""
    rows = list(results)
    found = combined(row.verdict for row in rows)
    measured = [row for row in rows if row.value is not None]
    compared = any(row.verdict is not Verdict.UNJUDGED for row in measured)
    # Correct data does not judge the rates that a check measured.
    return Verdict.UNJUDGED if found is Verdict.PASS and measured and not compared else found


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
        return verdict_of(self.results)

    def contradictions(self) -> Contradictions:
        """Yield each key of a result that contradicts others."""
        return (
            (f"results.{at}.{key}", what)
            for at, row in enumerate(self.results)
            for key, what in row.contradictions()
        )

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
