# SPDX-License-Identifier: MIT
"""Derive bands from the readings of several runs of a site.

The band of a series is its median plus or minus its scatter (median absolute deviation). A band
must be narrow enough that 0.8 times any of its readings is degraded; otherwise the series gets no
band. Readings that are slow according to the link model, runs with a fault and slow nodes do not
become the norm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from busbar.document import in_json, written
from busbar.engine.check_document import CheckDocument, ResultRow
from busbar.parse.tables import refused
from busbar.robust import DEVIATION, quality
from busbar.site.calibration import CalibratedBand, Calibration, Replaced, SeriesKey
from busbar.units import format_bytes
from busbar.verdict import Verdict
from busbar.words import counted, grouped

FEWEST_RUNS = 3
_COMMAND = "busbar site calibrate"
_NARROWEST = 0.05
_WIDEST = 0.1
"""0.8 times the upper end of the band is below its lower end."""
_SIGMAS = 4
_STRAY_SHARE = 0.05
"""Share of readings that may be outside the band: a check repeats them."""


@dataclass(frozen=True)
class _Measured:
    """One reading, in the unit of its series."""

    value: float
    node: str
    run: int
    model: float | None
    """Typical value of links and family; None without a band."""
    calibrated: bool
    """Whether it was judged by an earlier calibration."""


@dataclass(frozen=True)
class CalibratedSeries:
    """The result for one series."""

    series: SeriesKey
    """The series."""
    readings: int
    """Number of readings in all runs."""
    typical: float
    """Their median, in GB/s, or in us for a latency."""
    spread: float
    """Their standard deviation over the median, by the median absolute deviation."""
    model: float | None = field(metadata=written("of_model"))
    """Median divided by the model's typical value; null if the model has no band."""
    refused: str = ""
    """Why the series has no band."""

    @property
    def name(self) -> str:
        """The series in words: ``link_matrix D D 18 x nvlink4 16 MiB``."""
        series = self.series
        half = {True: "in place", False: "out of place", None: ""}[series.in_place]
        operation = series.operation if series.operation != series.bench else ""
        words = (series.check, series.bench, operation, half, series.buffers, series.links)
        return " ".join([*dict.fromkeys(filter(None, words)), format_bytes(series.bytes)])


@dataclass(frozen=True)
class CalibrationResult:
    """All series, with or without a band."""

    schema: Literal["busbar-calibration/1"] = field(default="busbar-calibration/1", kw_only=True)
    """The schema of this document."""
    calibration: Calibration = field(metadata=written(hidden=True))
    file: str | None = field(default=None, kw_only=True)
    """The file that was written; null if no series got a band."""
    lines: tuple[CalibratedSeries, ...] = field(metadata=written("series"))
    """The series."""

    @property
    @in_json(after="schema")
    def site(self) -> str:
        """Name of the site."""
        return self.calibration.site


@dataclass(frozen=True)
class Accept:
    """Readings that are accepted although they are lower than expected."""

    below_model: bool = False
    """Lower than the link model."""
    below_previous: bool = False
    """Lower than an earlier calibration of the site."""


def calibrate(
    documents: Mapping[str, CheckDocument],
    *,
    site: str,
    former: Calibration | None = None,
    accept: Accept = Accept(),
) -> CalibrationResult:
    """Return the bands of ``documents``, keyed by file name.

    ``former`` is the calibration that the result replaces; its bands are kept for series that were
    not measured again. Raises ``BusbarError`` for runs of another site, with a fault or on a busy
    node, for too few runs, and for readings below the model or an earlier calibration.
    """
    if len(documents) < FEWEST_RUNS:
        runs = counted(len(documents), "run")
        raise refused(__file__, "few-runs", runs=runs, fewest=FEWEST_RUNS)
    for name, document in documents.items():
        _refuse(name, document, site, accept)
    groups: dict[SeriesKey, list[_Measured]] = defaultdict(list)
    for run, document in enumerate(documents.values()):
        for row in document.results:
            if row.series and (measured := _measured(run, row)):
                groups[row.series].append(measured)
    _refuse_different_nodes(groups)
    lines = tuple(_line(series, found) for series, found in groups.items())
    times = sorted(document.time for document in documents.values())
    before = {band.series: band for band in former.bands} if former else {}
    bands = {
        line.series: _band(line, times[-1], before.get(line.series))
        for line in lines
        if not line.refused
    }
    judged_anew = {series for series, found in groups.items() if any(e.calibrated for e in found)}
    _refuse_lower([line for line in lines if line.series in bands], bands, judged_anew, accept)
    calibration = Calibration(
        site=site,
        first=times[0],
        last=times[-1],
        runs=len(documents),
        # Output that does not name its node has no node without a scheduler.
        nodes=tuple(sorted({e.node for found in groups.values() for e in found if e.node})),
        versions=_versions(documents),
        bands=tuple({**before, **bands}.values()) if bands else (),
    )
    return CalibrationResult(calibration, lines)


def _refuse_lower(
    lines: Sequence[CalibratedSeries],
    bands: Mapping[SeriesKey, CalibratedBand],
    judged_anew: Collection[SeriesKey],
    accept: Accept,
) -> None:
    """Refuse a median below the band that it replaces, or below the model.

    Each step of a slow decline is within the scatter of the step before, but not of the first.
    """
    for line in lines:
        for band in bands[line.series].replaced:
            kept = _quality(line.series, line.typical, band.typical)
            if kept < 1 - _width(band.spread) and not accept.below_previous:
                raise refused(__file__, "worse", _COMMAND, line=line, band=band, loss=1 - kept)
        # Readings judged by a calibration have not been judged by the model yet.
        if line.model is None or line.series not in judged_anew or accept.below_model:
            continue
        if _quality(line.series, line.model, 1.0) < 1 - _WIDEST:
            raise refused(__file__, "below-model", _COMMAND, line=line)


def _refuse(name: str, document: CheckDocument, site: str, accept: Accept) -> None:
    """Refuse a run that does not represent a healthy site."""
    if document.site != site:
        raise refused(__file__, "other-site", name, other=document.site, site=site)
    for cause in document.causes:
        known_slow = cause.id == "below-band-unexplained"
        if not (known_slow and (accept.below_model or accept.below_previous)):
            raise refused(__file__, "fault", name, cause=cause)
    for row in document.results:
        below = row.verdict is Verdict.DEGRADED and row.typical is not None
        accepted = accept.below_previous if row.calibrated else accept.below_model
        if row.verdict.is_problem and not (below and accepted):
            of = "previous" if row.calibrated else "model"
            accepting = f"; --accept-below-{of} accepts readings below the {of} as the norm"
            raise refused(__file__, "problem", name, row=row, accept=accepting * below)


def _measured(run: int, row: ResultRow) -> _Measured | None:
    if not row.value:
        return None
    # A floor has the same low and typical value, and does not define what is typical.
    model = row.typical if row.typical != row.low else None
    if row.calibrated:
        model = row.model
    return _Measured(row.value, row.where, run, model, row.calibrated)


def _refuse_different_nodes(groups: Mapping[SeriesKey, Sequence[_Measured]]) -> None:
    """Refuse readings of a node that differ from the other nodes."""
    for series, found in groups.items():
        nodes = grouped((each.node, each.value) for each in found)
        middles = {node: median(values) for node, values in nodes.items()}
        scatter = median(abs(each.value / middles[each.node] - 1) for each in found)
        middle = median(middles.values())
        node = max(middles, key=lambda name: abs(middles[name] / middle - 1))
        if abs(middles[node] / middle - 1) <= _width(DEVIATION * scatter):
            continue
        where = f"{series.check} {format_bytes(series.bytes)}"
        what = f"node {node} differs: {where} has {middles[node]:.4g} there, {middle:.4g} on the"
        what += " others"
        if len(nodes) == 2:  # which of the two is slow is unknown
            values = " and ".join(f"{value:.4g} on {name}" for name, value in middles.items())
            what = f"nodes {' and '.join(nodes)} differ: {where} has {values}"
        raise refused(__file__, "nodes-differ", _COMMAND, what=what)


def _quality(series: SeriesKey, value: float, typical: float) -> float:
    """Return the ratio of a value to the typical value; below 1 is worse."""
    return quality(value, typical, latency=series.kind == "latency_us")


def _line(series: SeriesKey, found: Sequence[_Measured]) -> CalibratedSeries:
    values = [each.value for each in found]
    typical = median(values)
    spread = DEVIATION * median(abs(value - typical) for value in values) / typical
    # The model can depend on the run: the band of a latency follows the driver's speed.
    ratios = [each.value / each.model for each in found if each.model]
    model = median(ratios) if ratios else None
    line = CalibratedSeries(series, len(values), typical, spread, model)
    return replace(line, refused="; ".join(_reasons(line, found)))


def _reasons(line: CalibratedSeries, found: Sequence[_Measured]) -> Iterator[str]:
    runs = len({each.run for each in found})
    if runs < FEWEST_RUNS:
        yield f"measured in {runs} runs, {FEWEST_RUNS} are needed"
        return
    width = _width(line.spread)
    stray = [each for each in found if abs(each.value / line.typical - 1) > width]
    if width > _WIDEST or len(stray) > _STRAY_SHARE * len(found):
        least, most = min(e.value for e in found), max(e.value for e in found)
        yield f"readings scatter from {least:.4g} to {most:.4g}; repeat on idle nodes"


def _width(spread: float) -> float:
    return max(_NARROWEST, _SIGMAS * spread)


def _band(line: CalibratedSeries, last: str, former: CalibratedBand | None) -> CalibratedBand:
    width = _width(line.spread)
    replaced: tuple[Replaced, ...] = ()
    if former:
        last_one = Replaced(typical=former.typical, spread=former.spread, last=former.last)
        replaced = (*former.replaced, last_one)
    return CalibratedBand(
        series=line.series,
        typical=_rounded(line.typical),
        low=_rounded(line.typical * (1 - width)),
        high=_rounded(line.typical * (1 + width)),
        readings=line.readings,
        spread=round(line.spread, 4),
        last=last,
        replaced=replaced,
    )


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _versions(documents: Mapping[str, CheckDocument]) -> dict[str, str]:
    """Return the software versions. Raises ``BusbarError`` if runs differ."""
    found: dict[str, str] = {}
    for name, document in documents.items():
        for what, version in document.versions.items():
            if version and found.setdefault(what, version) != version:
                words = {"what": what, "version": version, "other": found[what]}
                raise refused(__file__, "other-software", name, **words)
    return found


def below_model(lines: Iterable[CalibratedSeries]) -> list[CalibratedSeries]:
    """Return the series with a median more than 5 % worse than the model."""
    known = ((line, line.model) for line in lines if line.model is not None and not line.refused)
    return [line for line, model in known if _quality(line.series, model, 1.0) < 1 - _NARROWEST]
