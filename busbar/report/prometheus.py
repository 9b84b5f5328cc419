# SPDX-License-Identifier: MIT
"""Write a run for Prometheus: the text format, as node_exporter's textfile collector reads it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from busbar.boundary import one_line
from busbar.check.names import short_name
from busbar.check.snapshot import Snapshot
from busbar.cluster.nodes.record import NodeRecord
from busbar.engine.results import Result
from busbar.parse.tables import beside
from busbar.report.rows import quality
from busbar.verdict import Verdict

_TEXTS = beside(__file__)
_GIGA = 1e9
_MICRO = 1e-6


class Families(Collector):
    """Metrics by name; of several samples with equal labels the first one counts."""

    def __init__(self) -> None:
        self._families: dict[str, GaugeMetricFamily] = {}
        self._seen: set[tuple[str, ...]] = set()

    def add(self, name: str, text: str) -> None:
        """Declare a metric; metrics are written in this order."""
        self._families[name] = GaugeMetricFamily(name, text)

    def set(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Keep a value; words from outside cannot control a terminal."""
        words = [one_line(word) for word in labels.values()]
        if (name, *words) not in self._seen:
            self._seen.add((name, *words))
            samples = self._families[name].samples
            samples.append(Sample(name, dict(zip(labels, words, strict=True)), value))

    def collect(self) -> Iterator[Metric]:
        """Return the metrics that have a sample."""
        return (family for family in self._families.values() if family.samples)

    def text(self) -> str:
        """Return the text format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()


def metrics(run: Snapshot) -> str:
    """Return verdicts, readings, bands and limits in base units: seconds, bytes per second."""
    site = {"site": run.site}
    families = _declared()
    seconds = datetime.fromisoformat(run.time).timestamp()
    families.set("busbar_run_timestamp_seconds", seconds, site)
    counts = Counter(outcome.verdict for outcome in run.outcomes)
    for each in Verdict:
        of_verdict = {**site, "verdict": str(each)}
        families.set("busbar_run_verdict", each is run.verdict, of_verdict)
        families.set("busbar_checks", counts[each], of_verdict)
    for outcome in run.outcomes:
        of_check = {
            **site,
            "partition": outcome.partition,
            "environment": outcome.environment,
            "check": short_name(outcome.check),
        }
        families.set("busbar_check_severity", outcome.verdict.severity, of_check)
        for row in sorted(outcome.results, key=lambda row: (-row.verdict.severity, quality(row))):
            _set(families, row, of_check)
    return families.text()


def node_metrics(nodes: Iterable[NodeRecord]) -> str:
    """Return the state of each node, and what to do next."""
    families = Families()
    families.add("busbar_node_state", "1 for the state of the node.")
    families.add("busbar_node_next", "1 for the next action on the node; none if empty.")
    for record in nodes:
        families.set("busbar_node_state", 1, {"node": record.node, "state": record.state})
        families.set("busbar_node_next", 1, {"node": record.node, "action": record.next})
    return families.text()


def _declared() -> Families:
    families = Families()
    severities = ", ".join(f"{each.severity} {each}" for each in Verdict)
    for name, text in _TEXTS["run"].items():
        families.add(f"busbar_{name}", text.format(severities=severities))
    for what, unit in (("latency", "seconds"), ("bandwidth", "bytes_per_second")):
        for part, text in _TEXTS["reading"].items():
            families.add(f"busbar_{what}_{part}{unit}", text.format(what))
    return families


def _set(families: Families, row: Result, of_check: dict[str, str]) -> None:
    latency = row.metric == "latency"
    what, unit, factor = (
        ("latency", "seconds", _MICRO) if latency else ("bandwidth", "bytes_per_second", _GIGA)
    )
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
    values = {"": row.value, "low_": row.low, "high_": row.high, "limit_": row.limit}
    for part, value in values.items():
        if value is not None and math.isfinite(value):
            families.set(f"busbar_{what}_{part}{unit}", value * factor, labels)
