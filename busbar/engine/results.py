# SPDX-License-Identifier: MIT
"""What a check found: one row a reading, as tables, reports and JSON show it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from math import isfinite
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from busbar.documents import CauseRow, NoteRow, SeriesRow
from busbar.engine.verdicts import Judged
from busbar.parse import numbers
from busbar.units import format_bytes
from busbar.verdict import Verdict, combined

RESULTS_FILE = "results.json"
"""Where a check leaves its outcome in ReFrame's stage directory."""


_SHOWN = 3
_LEAST_US = 0.01
"""Shorter times than this are the transfer of a few bytes by the rate of a link."""
_METRICS = {"bw": "bandwidth", "busbw": "busbw", "latency_us": "latency"}


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
    calibrated: bool = False
    """Whether the band is the site's own calibration."""
    model: float | None = None
    """What links and family call typical if it is."""
    cpu_wait_share: float | None = None
    """The part of the reading's time in which a rank waited for a CPU; None if not measured."""
    cause: str = ""
    """Cause id, or several with commas; empty for a pass."""
    message: str = ""
    """One sentence for a verdict that is not pass."""
    series: SeriesRow | None = None
    """The series of the reading; None if the row is not a reading."""

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
        """The limit for people: that of a latency may be picoseconds, which says nothing."""
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
    def share_of_limit(self) -> float | None:
        """Reading over limit for a bandwidth; a latency has no share."""
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
    causes: tuple[CauseRow, ...] = ()
    """As ``busbar explain`` gives them: id, confidence, evidence, remedy."""
    notes: tuple[NoteRow, ...] = ()
    nodes: str = ""
    """Slurm's list of the nodes that it ran on; empty without Slurm."""
    provenance: dict[str, str] = field(default_factory=dict)
    """What the nodes that measured say of themselves, and what was delivered to them: ``driver``,
    ``lock.libfabric``..."""

    @classmethod
    def failed(cls, check: str, lane: str, message: str) -> Outcome:
        """Return the outcome of a check that never came to its own judgement."""
        return cls(check, lane, (Result(check, Verdict.FAILED, message=message),))

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the check from those of its results; ``failed`` without any."""
        return combined(result.verdict for result in self.results)

    def sentence(self) -> str:
        """The verdict, its first reasons, and the causes with their remedies; for one log line."""
        wrong = list(dict.fromkeys(r.message for r in self.results if r.verdict.is_problem))
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

    def to_json(self) -> str:
        """Return the text of :data:`RESULTS_FILE`."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """Read what :meth:`write` wrote; raise ``ValueError`` for anything else."""
        text = path.read_text(encoding="utf-8")
        try:
            outcome = _outcomes().validate_json(text, strict=False)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"{path.name}, {where}: {first['msg']}") from error
        if numbers.load_json(text).keys() - {each.name for each in fields(cls)}:
            raise ValueError(f"{path.name} has keys that no outcome has")
        return outcome


@cache
def _outcomes() -> TypeAdapter[Outcome]:
    return TypeAdapter(Outcome)


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
