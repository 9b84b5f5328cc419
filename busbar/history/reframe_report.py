# SPDX-License-Identifier: MIT
"""Readings of ReFrame's reports: of Busbar's checks with their provenance, of others without."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from busbar.history.json_lines import seconds
from busbar.history.model import Bounds, Key
from busbar.history.record import VARIABLE, Record
from busbar.history.store import Reading
from busbar.parse import numbers

_FIELDS = 5
"""Value, reference, lower and upper threshold, unit."""


@dataclass(frozen=True)
class Session:
    """One session of ReFrame."""

    uuid: str
    host: str
    readings: tuple[Reading, ...]


def parse(text: str) -> Session:
    """Parse a report; raise ``ValueError`` for anything else."""
    try:
        report = numbers.load_json(text)
        info = report["session_info"]
        ended = seconds(info["time_end_unix"])
        found = [
            reading
            for run in report["runs"]
            for case in run["testcases"]
            for reading in _readings(case, ended)
        ]
        return Session(str(info["uuid"]), str(info["hostname"]), tuple(found))
    except KeyError as error:
        raise ValueError(f"a report of ReFrame without {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError("a report of ReFrame with keys of another type") from error


def _readings(case: Mapping[str, Any], ended: float) -> Iterator[Reading]:
    time = seconds(case.get("job_completion_time_unix") or ended)
    if case.get(VARIABLE):
        yield from Record.parse(case[VARIABLE]).readings(str(case["system"]), time)
        return
    nodes = ",".join(sorted(map(str, case.get("job_nodelist") or ())))
    for name, fields in (case.get("perfvalues") or {}).items():
        if len(fields) < _FIELDS:
            raise ValueError(f"{name!r} has {len(fields)} fields, not {_FIELDS}")
        value, reference, lower, upper, unit = fields[:_FIELDS]
        if _is_number(value) and math.isfinite(value):
            key = Key(
                site=str(case["system"]),
                partition=str(case["partition"]),
                node=nodes,
                check=str(case.get("display_name") or case["name"]).partition(" ")[0],
                metric=name.rpartition(":")[2],
                unit=str(unit or ""),
                delivery=str(case.get("environ") or ""),
            )
            yield Reading(key, time, float(value), {}, bounds(reference, lower, upper))


def bounds(reference: object, lower: object, upper: object) -> Bounds:
    """Return a reference of ReFrame, whose thresholds are shares of it."""
    if not _is_number(reference) or not reference:
        return Bounds()
    ends = [reference * (1 + each) if _is_number(each) else None for each in (lower, upper)]
    return Bounds(ends[0], float(reference), ends[1])


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
