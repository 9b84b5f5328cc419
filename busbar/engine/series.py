# SPDX-License-Identifier: MIT
"""Which series a reading belongs to, and the band that its site measured for that series."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace

from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.tool import joins_pair
from busbar.errors import BusbarError
from busbar.expect.expectation import Expectation
from busbar.expect.paths import within_node
from busbar.site.calibration import CalibratedBand, Calibration, SeriesKey, load as calibration
from busbar.site.load import link_classes
from busbar.site.model import Site


def series_of(run: Run, reading: Reading) -> SeriesKey | None:
    """Return the series of a reading; None if it is judged by a copy in the same run.

    Unknown properties are empty, 0 or None.
    """
    if run.site is None or run.copies is not None or reading.kind == "algbw":
        return None
    return SeriesKey(
        check=run.check,
        partition=run.partition or "",
        bench=run.bench,
        harness=run.harness or "",
        lane=run.lane or "",
        nodes=run.nodes or 0,
        ranks=run.ranks or 0,
        kind=reading.kind,
        operation=reading.operation,
        buffers=reading.buffers or run.buffers,
        in_place=reading.in_place,
        links=_links(run.site, run, reading),
        bytes=reading.nbytes,
    )


def calibrated(
    run: Run, reading: Reading, limit: float | None, model: float | None
) -> Iterator[Expectation]:
    """Yield the bands that the site measured for the series of a reading.

    ``limit`` is the limit of the links and ``model`` the typical value of their model, if known. A
    band above the limit belongs to another machine.
    """
    measured = calibration(run.site) if run.site else None
    series = series_of(run, reading) if measured else None
    if measured and series:
        for band in measured.bands:
            if _may_be(band.series, series):
                found = _expectation(measured, band, limit)
                if found.unit == "us" or found.typical <= found.limit:
                    yield replace(found, calibrated=True, model=model)


def _may_be(band: SeriesKey, series: SeriesKey) -> bool:
    """Whether a reading may belong to a band's series; unknown properties match anything."""
    for name in (field.name for field in fields(SeriesKey)):
        known, value = getattr(series, name), getattr(band, name)
        if known != value and (known not in ("", 0, None) or name in ("operation", "bytes")):
            return False
    return True


def _expectation(measured: Calibration, band: CalibratedBand, limit: float | None) -> Expectation:
    latency = band.series.kind == "latency_us"
    known = limit if limit is not None else (0.0 if latency else math.inf)
    source = (
        f"calibration of {band.last[:10]}: {band.readings} readings of {measured.runs} runs on"
        f" {len(measured.nodes)} nodes, spread {band.spread:.1%}"
    )
    return Expectation(
        limit=known,
        low=band.low,
        typical=band.typical,
        high=band.high if latency else min(band.high, known),
        unit="us" if latency else "GB/s",
        path=(band.series.links,) if band.series.links else (),
        sources=(source,),
        proof="run",
        nbytes=band.series.bytes,
    )


def _links(site: Site, run: Run, reading: Reading) -> str:
    """Name the links between both GPUs of a pair; empty for the same GPU, or outside a node."""
    if not joins_pair(run.bench) or (run.nodes or 1) > 1 or run.memory == "host":
        return ""
    ends = [0, 1] if reading.source is None else [reading.source, reading.target]
    source, target = (run.gpu(end) if end is not None else None for end in ends)
    if source == target:
        return ""
    try:
        path = within_node(site.node_type(run.partition), link_classes(site), source, target)
    except BusbarError:  # the site does not state the links between its GPUs
        return ""
    return ", ".join(f"{hop.count} x {hop.link_class}" for hop in path.hops)
