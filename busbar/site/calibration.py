# SPDX-License-Identifier: MIT
"""Bands that a site measured on itself: `calibration.yaml` beside its `site.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from busbar.boundary import replace_file
from busbar.errors import file_error
from busbar.parse.tables import refused
from busbar.site.model import Positive, Site
from busbar.site.record import Record
from busbar.site.yamlfile import Document, parse

CALIBRATION_FILE = "calibration.yaml"


@dataclass(frozen=True, kw_only=True)
class SeriesKey:
    """The series of a reading: its readings are compared with each other and with its band.

    Unknown facts of a run are empty, 0 or None; a calibration contains no such series.
    """

    check: str
    """The check without its parameters."""
    partition: str
    """Partition of the site."""
    bench: str
    """The benchmark; for nccl-tests and rccl-tests the collective."""
    harness: str = ""
    """What timed a collective: ``nccl-tests``, ``rccl-tests`` or ``pytorch``."""
    lane: str
    """Lane of UCX."""
    nodes: int
    """Nodes of the run."""
    ranks: int
    """Ranks of all nodes."""
    kind: str
    """``bw``, ``busbw`` or ``latency_us``."""
    operation: str = ""
    """What ran, where one run measures several."""
    buffers: str = ""
    """Memory of sender and receiver, device or host: ``D D``, ``H D``."""
    in_place: bool | None = None
    """Which half of the row of nccl-tests."""
    links: str = ""
    """The links between both ends of a pair of GPUs: ``18 x nvlink4``."""
    bytes: int
    """Message size."""

    def complete(self) -> SeriesKey:
        """Return it; raise ``ValueError`` if it cannot be the series of a band."""
        for name in ("nodes", "ranks", "bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"series: {name} must be at least 1, got {getattr(self, name)}")
        if self.kind not in _KINDS:
            raise ValueError(f"series: kind must be one of {', '.join(_KINDS)}, got {self.kind!r}")
        return self


_KINDS = ("bw", "busbw", "latency_us")


def _known_keys(data: Any) -> Any:
    """Refuse other keys: a misspelled one would make another series."""
    if isinstance(data, Mapping) and (other := data.keys() - SeriesKey.__annotations__.keys()):
        raise ValueError(f"unknown key {min(map(str, other))!r}")
    return data


class Replaced(Record):
    """A band that a later calibration has replaced."""

    typical: Positive
    """Its median."""
    spread: Annotated[float, Field(ge=0)]
    """Its spread."""
    last: str
    """Time of its last run."""


class CalibratedBand(Record):
    """The band of one series."""

    series: Annotated[SeriesKey, BeforeValidator(_known_keys), AfterValidator(SeriesKey.complete)]
    """What it is the band of."""
    typical: Positive
    """Median of the readings, in GB/s, or in us for a latency."""
    low: Positive
    """Lowest healthy reading."""
    high: Positive
    """Highest healthy reading."""
    readings: Annotated[int, Field(ge=1)]
    """Number of readings."""
    spread: Annotated[float, Field(ge=0)]
    """Median absolute deviation over the median, times 1.4826: the standard deviation of a normal
    distribution."""
    last: str
    """Time of the last run."""
    replaced: tuple[Replaced, ...] = ()
    """What the bands before it were, the oldest first."""

    @model_validator(mode="after")
    def _in_order(self) -> CalibratedBand:
        if not self.low <= self.typical <= self.high:
            raise ValueError("low, typical and high must be in ascending order")
        return self


class Calibration(Record):
    """All bands of a site, and what they were measured with."""

    site: str
    """Name of the site."""
    first: str
    """Time of the first run, ISO 8601."""
    last: str
    """Time of the last run."""
    runs: Annotated[int, Field(ge=1)]
    """Number of runs."""
    nodes: tuple[str, ...]
    """Nodes of the readings."""
    versions: dict[str, str] = Field(default_factory=dict)
    """What ran: ``mpi``, ``ucx``, ``gpu_driver``."""
    bands: tuple[CalibratedBand, ...]
    """One for each series."""

    @model_validator(mode="after")
    def _one_for_each_series(self) -> Calibration:
        if len({band.series for band in self.bands}) < len(self.bands):
            raise ValueError("a series has two bands")
        return self


def load(site: Site) -> Calibration | None:
    """Return the calibration of a site; None if it has none.

    Raises ``BusbarError`` if the file is of another site, or is not valid.
    """
    if site.directory is None:
        return None
    path = site.directory / CALIBRATION_FILE
    try:
        changed = path.stat().st_mtime_ns
    except FileNotFoundError:  # most sites have none
        return None
    found = _load(path, changed)
    if found.site != site.name:
        raise refused(__file__, "other-site", path, of=found.site, site=site.name)
    return found


@lru_cache(maxsize=16)
def _load(path: Path, _changed: int) -> Calibration:
    document = Document(path)
    return parse(Calibration, document.data, [document])


def write(calibration: Calibration, directory: Path) -> Path:
    """Write the file beside `site.yaml`; return it."""
    path = directory / CALIBRATION_FILE
    document = calibration.model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump(document, sort_keys=False, width=99, default_flow_style=None)
    hint = "copy the site to your own directory and add that to BUSBAR_SITE_PATH"
    with file_error("cannot be written", path, hint):
        replace_file(
            path,
            "# SPDX-License-Identifier: MIT\n"
            "# Bands of this site's own readings, written by busbar site calibrate.\n" + text,
        )
    return path
