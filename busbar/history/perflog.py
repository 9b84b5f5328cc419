# SPDX-License-Identifier: MIT
"""ReFrame's performance logs: lines with ``|``, the names of their fields in the first line.

The fields of a variable are ``NAME_value``, ``NAME_unit`` and so on. A new header begins where the
fields change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from busbar.history.record import HistoryRecord, Measured
from busbar.history.reframe import bounds
from busbar.parse import numbers
from busbar.units import seconds

_TIME = "job_completion_time"
_VALUE = "_value"
_BAND = ("ref", "lower_thres", "upper_thres")


def is_perflog(head: str) -> bool:
    """Whether the first line of a file is that of a performance log."""
    return "|" in head and _TIME in head.split("|")


def parse(
    lines: Iterable[str], path: PurePath, site: str, partition: str
) -> Iterator[HistoryRecord]:
    """Parse a log; raise ``ValueError`` with the number of the first wrong line.

    Site and partition are fields of the log, or the directories above it, as ReFrame's default is
    ``SYSTEM/PARTITION/CHECK.log``.
    """
    names: list[str] = []
    for number, line in enumerate(lines, 1):
        fields = line.rstrip("\n").split("|")
        if _TIME in fields:
            names = fields
        elif line.strip():
            try:
                if len(fields) != len(names):
                    raise ValueError(f"has {len(fields)} fields, its header {len(names)}")
                row = dict(zip(names, fields, strict=True))
                if row.get(_TIME) not in (None, "", "null"):  # a job that never ran
                    yield _record(row, path, site, partition)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error


def _record(row: Mapping[str, str], path: PurePath, site: str, partition: str) -> HistoryRecord:
    above = path.absolute().parts if hasattr(path, "absolute") else path.parts
    site = site or row.get("system", "").partition(":")[0] or (above[-3] if len(above) > 2 else "")
    partition = partition or row.get("partition", "") or (above[-2] if len(above) > 1 else "")
    check = row.get("display_name") or row.get("name") or path.stem
    rows = []
    for name, text in row.items():
        variable = name.removesuffix(_VALUE)
        value = numbers.real(text) if name != variable else None
        if value is not None and math.isfinite(value):
            ends = (row.get(f"{variable}_{end}", "") for end in _BAND)
            rows.append(
                Measured(
                    node=row.get("job_nodelist", "").replace(" ", ""),
                    metric=variable,
                    unit=row.get(f"{variable}_unit", ""),
                    value=value,
                    **vars(bounds(*map(numbers.real, ends))),
                )
            )
    return HistoryRecord(
        site=site,
        partition=partition,
        check=check.partition(" ")[0],
        delivery=row.get("environ", ""),
        time=seconds(row[_TIME]),
        rows=tuple(rows),
    )
