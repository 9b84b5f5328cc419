# SPDX-License-Identifier: MIT
"""ReFrame's performance logs: lines with ``|``, the names of their fields in the first line.

The fields of a variable are ``NAME_value``, ``NAME_unit`` and so on. A new header begins where the
fields change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from busbar.history.json_lines import seconds
from busbar.history.model import Key
from busbar.history.reframe_report import bounds
from busbar.history.store import Reading
from busbar.parse import numbers

_TIME = "job_completion_time"
_VALUE = "_value"


def is_perflog(head: str) -> bool:
    """Whether the first line of a file is that of a performance log."""
    return "|" in head and _TIME in head.split("|")


def parse(lines: Iterable[str], path: PurePath, site: str, partition: str) -> Iterator[Reading]:
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
                yield from _readings(row, path, site, partition)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error


def _readings(
    row: Mapping[str, str], path: PurePath, site: str, partition: str
) -> Iterator[Reading]:
    if row.get(_TIME) in (None, "", "null"):
        return  # a job that never ran
    time = seconds(row[_TIME])
    above = path.absolute().parts if hasattr(path, "absolute") else path.parts
    site = site or row.get("system", "").partition(":")[0] or (above[-3] if len(above) > 2 else "")
    partition = partition or row.get("partition", "") or (above[-2] if len(above) > 1 else "")
    check = row.get("display_name") or row.get("name") or path.stem
    for name, text in row.items():
        variable = name.removesuffix(_VALUE)
        value = numbers.real(text) if name != variable else None
        if value is None or not math.isfinite(value):
            continue
        key = Key(
            site=site,
            partition=partition,
            node=row.get("job_nodelist", "").replace(" ", ""),
            check=check.partition(" ")[0],
            metric=variable,
            unit=row.get(f"{variable}_unit", ""),
            delivery=row.get("environ", ""),
        )
        ends = [
            numbers.real(row.get(f"{variable}_{end}", ""))
            for end in ("ref", "lower_thres", "upper_thres")
        ]
        yield Reading(key, time, value, {}, bounds(*ends))
