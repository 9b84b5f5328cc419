# SPDX-License-Identifier: MIT
"""Readings with their provenance, as checks keep them and the store takes them.

ReFrame's own performance variables contain only readings with a band, without their series. A
check therefore has a variable ``busbar``, which ReFrame stores in its report of the test case.
Nodes state their provenance themselves: `provenance.sh` writes a record before they measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from busbar.boundary import read_text
from busbar.document import Contradictions, Sealed, written
from busbar.engine.results import Outcome, Result
from busbar.history.model import HistoryBounds, HistoryKey
from busbar.redact import kept_environment, redact, redact_document
from busbar.site.calibration import SeriesKey
from busbar.units import format_bytes

_MOST = 1e18
_RANGES = {"GB/s": (0.0, 1e9), "us": (1e-4, 1e12)}
VARIABLE = "busbar"
"""The variable of a check."""


@dataclass(frozen=True, kw_only=True)
class Measured(HistoryBounds):
    """One reading."""

    node: str
    metric: str
    unit: str
    value: float
    series: SeriesKey | None = None
    """The series as the calibration of a site has it; None for readings of others."""


@dataclass(frozen=True, kw_only=True)
class HistoryRecord(Sealed):
    """The readings of one outcome and what they were measured with."""

    check: str
    partition: str = ""
    lane: str = ""
    delivery: str = ""
    rows: tuple[Measured, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    site: str = field(default="", metadata=written(hidden=True))
    time: float = field(default=0.0, metadata=written(hidden=True))
    """Seconds since 1970. ReFrame states site and time of each test case."""

    @classmethod
    def of(cls, outcome: Outcome) -> HistoryRecord:
        """Return the stored form of an outcome."""
        return cls(
            check=outcome.check.partition(" ")[0],
            partition=outcome.partition,
            lane=outcome.lane,
            delivery=outcome.delivery,
            rows=tuple(row for result in outcome.results for row in measured(result)),
            provenance=dict(outcome.provenance),
        )

    def contradictions(self) -> Contradictions:
        """Yield each key of a reading that is impossible."""
        for row in self.rows:
            yield from HistoryBounds.of(row).contradictions()
            least, most = _RANGES.get(row.unit, (-_MOST, _MOST))
            if not least <= row.value <= most:
                yield "value", f"must be {least:g} to {most:g} {row.unit}, got {row.value:g}"

    def key(self, row: Measured) -> HistoryKey:
        """Return the series of a reading."""
        return HistoryKey(
            site=self.site,
            partition=self.partition,
            node=row.node,
            check=self.check,
            metric=row.metric,
            unit=row.unit,
            lane=self.lane,
            delivery=self.delivery,
        )


def measured(result: Result) -> Iterator[Measured]:
    """Yield the stored form of a result; nothing if it is not a reading."""
    if result.value is not None and result.value > 0 and result.bytes is not None:
        metric = metric_of(result.metric, result.pair, result.buffers, result.bytes, result.series)
        yield Measured(
            node=result.where,
            metric=metric,
            unit=result.unit,
            value=result.value,
            series=result.series,
            **vars(HistoryBounds.of(result)),
        )


def metric_of(metric: str, pair: str, buffers: str, nbytes: int, series: SeriesKey | None) -> str:
    """Return what a reading is of in words: ``all_reduce busbw D D 16 MiB``."""
    names, half = [metric, pair], ""
    if series:
        half = {True: "in place", False: "out of place", None: ""}[series.in_place]
        names = [series.bench, series.operation, *names]
    # Operation and pair repeat each other: "fi_pingpong" and "fi_pingpong tcp".
    words = dict.fromkeys(" ".join(names).replace(half, "").split())
    return " ".join(filter(None, [*words, buffers, half, format_bytes(nbytes)]))


RECORDS = "provenance-record.*"
_VOLATILE = ("OMPI_MCA_orte_", "OMPI_MCA_ess_", "PRTE_MCA_prte_tmpdir", "PRTE_MCA_ess_")
"""Variables that differ in each run by themselves."""
_LONGEST_OF_NODES = 300
_ENV = "env."
_ENVIRONMENTS = ("env", "environment")
_DIGEST = re.compile(r"(?:[a-z0-9]{2,8}[:-])?(?P<hex>[0-9a-f]{32,128})")
_DIGEST_NAMES = re.compile(r"(?:^|[._])(?:commit|hash|digest|image|lock)$")
_DIGEST_SHOWN = 12
_MOST_FACTS = 2000
_LONGEST = 500


def flat(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of a document: ``lock.libfabric`` and its version; null gives no fact.

    Digests are shortened. Raises ``ValueError`` if there are too many facts.
    """
    try:
        facts = dict(_flat(_short(document), ""))
    except RecursionError:
        raise ValueError("provenance is nested too deep") from None
    if len(facts) > _MOST_FACTS:
        raise ValueError(f"provenance has {len(facts)} facts, at most {_MOST_FACTS} are kept")
    return facts


def _short(document: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten digests, which look like keys, and remove secrets."""
    plain: dict[str, Any] = {}
    digests = {}
    for name, value in document.items():
        digest = _DIGEST.fullmatch(value) if isinstance(value, str) else None
        if digest and _DIGEST_NAMES.search(name):
            digests[name] = digest["hex"][:_DIGEST_SHOWN]
        elif name in _ENVIRONMENTS and isinstance(value, Mapping):
            plain["env"] = kept_environment({str(k): str(v) for k, v in value.items()})
        else:
            plain[name] = _short(value) if isinstance(value, Mapping) else value
    return {**redact_document(plain), **digests}


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        yield name, ",".join(map(str, value))[:_LONGEST]
    elif value is not None:
        yield name, str(value)[:_LONGEST]


def node_facts(directory: Path) -> dict[str, str]:
    """Return the facts of the nodes that left records in a stage directory.

    Values of several devices or nodes are listed once each. Records that cannot be read are left
    out: a run is worth more than its provenance.
    """
    found: dict[str, set[str]] = {}
    nodes = []
    for path in sorted(directory.glob(RECORDS)):
        try:
            text = read_text(path, errors="replace")
        except OSError:  # left out, as the docstring says
            continue
        nodes.append(path.name.partition(".")[2])
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and value.strip() and not name.startswith(_ENV):
                found.setdefault(name, set()).add(redact(value.strip()))
        for name, value in _environment(text.splitlines()).items():
            found.setdefault(name, set()).add(value)
    facts = {name: ", ".join(sorted(found[name]))[:_LONGEST_OF_NODES] for name in sorted(found)}
    return {**facts, "nodes": ",".join(nodes)} if nodes else facts


def _environment(lines: Sequence[str]) -> Mapping[str, str]:
    """Return the variables that tune the stack, without secrets."""
    variables = dict(
        line.removeprefix(_ENV).partition("=")[::2] for line in lines if line.startswith(_ENV)
    )
    kept = kept_environment(variables)
    return {
        f"{_ENV}{name}": value for name, value in kept.items() if not name.startswith(_VOLATILE)
    }
