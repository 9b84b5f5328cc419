# SPDX-License-Identifier: MIT
"""Write a run for Prometheus: the text format, as node_exporter's textfile collector reads it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from busbar.check.names import short_name
from busbar.judge.results import Result
from busbar.report.rows import quality
from busbar.report.snapshot import Snapshot
from busbar.terminal import one_line
from busbar.verdict import Verdict

_GIGA = 1e9
_MICRO = 1e-6


@dataclass
class _Family:
    """The samples of one metric, by their labels."""

    name: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)

    def set(self, value: float, labels: Mapping[str, str]) -> None:
        """Keep a value; of several with equal labels the first one counts."""
        self.samples.setdefault(tuple(labels.items()), value)

    def lines(self) -> Iterator[str]:
        if self.samples:
            yield f"# HELP {self.name} {self.help}"
            yield f"# TYPE {self.name} gauge"
        for labels, value in self.samples.items():
            text = ",".join(f'{key}="{_escape(word)}"' for key, word in labels)
            yield f"{self.name}{{{text}}} {value!r}"


def metrics(run: Snapshot) -> str:
    """Return verdicts, readings, bands and limits in base units: seconds, bytes per second."""
    site = {"site": run.site}
    time = _Family("busbar_run_timestamp_seconds", "When the run ended.")
    if (seconds := _seconds(run.time)) is not None:
        time.set(seconds, site)
    verdict = _Family("busbar_run_verdict", "1 for the verdict of the run, 0 for the others.")
    checks = _Family("busbar_checks", "Checks by verdict.")
    counts = Counter(outcome.verdict for outcome in run.outcomes)
    for each in Verdict:
        verdict.set(float(each is run.verdict), {**site, "verdict": str(each)})
        checks.set(float(counts[each]), {**site, "verdict": str(each)})
    severity = _Family(
        "busbar_check_severity",
        "Verdict of a check: " + ", ".join(f"{each.severity} {each}" for each in Verdict) + ".",
    )
    readings = {
        "latency": list(_families("busbar_latency", "seconds", "latency")),
        "bandwidth": list(_families("busbar_bandwidth", "bytes_per_second", "bandwidth")),
    }
    for outcome in run.outcomes:
        of_check = {
            **site,
            "partition": outcome.partition,
            "environment": outcome.environment,
            "check": short_name(outcome.check),
        }
        severity.set(float(outcome.verdict.severity), of_check)
        for row in sorted(outcome.results, key=lambda row: (-row.verdict.severity, quality(row))):
            _set(readings, row, of_check)
    families = [time, verdict, checks, severity, *readings["latency"], *readings["bandwidth"]]
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _families(name: str, unit: str, what: str) -> Iterator[_Family]:
    yield _Family(f"{name}_{unit}", f"The {what} that was measured.")
    for bound, text in (("low", "Start"), ("high", "End")):
        yield _Family(f"{name}_{bound}_{unit}", f"{text} of the band of the {what}.")
    yield _Family(f"{name}_limit_{unit}", f"What the links allow of the {what}.")


def _set(readings: Mapping[str, list[_Family]], row: Result, of_check: dict[str, str]) -> None:
    latency = row.metric == "latency"
    factor = _MICRO if latency else _GIGA
    labels = {
        **of_check,
        "metric": row.metric,
        "node": row.where,
        "pair": row.pair,
        "buffers": row.buffers,
        "bytes": "" if row.bytes is None else str(row.bytes),
    }
    if row.value is None or not math.isfinite(row.value):
        return
    families = readings["latency" if latency else "bandwidth"]
    for family, value in zip(families, (row.value, row.low, row.high, row.limit), strict=True):
        if value is not None and math.isfinite(value):
            family.set(value * factor, labels)


def _seconds(time: str) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _escape(text: str) -> str:
    return one_line(text).replace("\\", "\\\\").replace('"', '\\"')
