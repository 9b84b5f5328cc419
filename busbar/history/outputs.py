# SPDX-License-Identifier: MIT
"""Readings of what benchmarks printed: nccl-tests and rccl-tests (text and JSON), OSU and others.

The outputs have no time of their own that all tools print, so that of the file counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from busbar.engine.collect import read
from busbar.engine.identify import named_operation
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Reading as Measured
from busbar.history.model import Key
from busbar.history.store import Reading
from busbar.parse.text import Source
from busbar.units import format_bytes

_METRICS = {"bw": "bandwidth", "busbw": "busbw", "algbw": "algbw", "latency_us": "latency"}


def parse(path: Path, site: str, partition: str, node: str, time: float) -> Iterator[Reading]:
    """Yield the readings of a file; raise ``ValueError`` if it has none."""
    found = False
    for run in read(Source.from_path(path)):
        for measured in run.readings:
            if measured.value > 0:
                found = True
                yield Reading(_key(run, measured, site, partition, node), time, measured.value)
    if not found:
        raise ValueError("it has no readings of a benchmark")


def _key(run: JobOutput, measured: Measured, site: str, partition: str, node: str) -> Key:
    pair = "" if measured.source is None else f"{measured.source}->{measured.target}"
    half = {True: "in place", False: "out of place", None: ""}[measured.in_place]
    named = named_operation(run)
    operation = measured.operation or (named[0] if named else "")
    words = (operation, _METRICS[measured.kind], pair, measured.buffers, half)
    return Key(
        site=site,
        partition=partition,
        node=node or ",".join(sorted(run.hosts)),
        check=run.tool or "",
        metric=" ".join([*dict.fromkeys(w for w in words if w), format_bytes(measured.nbytes)]),
        unit="us" if measured.kind == "latency_us" else "GB/s",
    )
