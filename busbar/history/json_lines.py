# SPDX-License-Identifier: MIT
"""Busbar's JSON lines: one object for each reading, in any order."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from busbar.history.facts import flat
from busbar.history.model import Bounds, Key
from busbar.history.store import Reading
from busbar.parse import numbers

_Text: TypeAlias = str
_NO_FACTS: dict[str, str] = {}


class Line(BaseModel):
    """One reading. Other keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    time: str | int | float
    """ISO 8601, UTC if it names no zone; or seconds since 1970."""
    site: _Text = Field("", validation_alias=AliasChoices("site", "system"))
    """The system that was measured."""
    partition: _Text | None = None
    """Partition of the system."""
    node: _Text | None = None
    """The node, or several with commas."""
    check: _Text | None = None
    """The check or benchmark."""
    metric: _Text = Field(min_length=1)
    """What was measured, with its size: ``busbw 16 MiB``."""
    unit: _Text | None = None
    """``GB/s``, ``us``...; of a time, less is better."""
    value: int | float
    """The reading."""
    lane: _Text | None = None
    """Lane of UCX or family of MPI."""
    delivery: _Text | None = None
    """How the stack reached the job."""
    low: float | None = None
    """Lowest healthy reading."""
    typical: float | None = None
    """Typical reading."""
    high: float | None = None
    """Highest healthy reading."""
    limit: float | None = None
    """What the links carry at most."""
    provenance: dict[str, Any] | None = None
    """What it was measured with: ``{"driver": "570.86", "lock": {"libfabric": "2.0"}}``."""


def parse(lines: Iterable[str]) -> Iterator[Reading]:
    """Parse lines; raise ``ValueError`` with the number of the first wrong one."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _reading(line)
            except ValidationError as error:
                raise ValueError(f"line {number}: {_refused(error)}") from error
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number}: is not JSON: {error.msg}") from error
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            except RecursionError:
                raise ValueError(f"line {number}: nested too deep") from None


def _refused(error: ValidationError) -> str:
    """Return the key that is wrong, and what is wrong with it."""
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "the line"
    # Of a key with several types, pydantic names only the first one.
    alternatives = len(first["loc"]) > 1 and key in Line.model_fields
    return f"{key}: has the wrong type" if alternatives else f"{key}: {first['msg']}"


def _reading(text: str) -> Reading:
    line = Line.model_validate(numbers.load_json(text))
    if not math.isfinite(line.value):
        raise ValueError("value: is not a finite number")
    key = Key(
        site=line.site,
        partition=line.partition or "",
        node=line.node or "",
        check=line.check or "",
        metric=line.metric,
        unit=line.unit or "",
        lane=line.lane or "",
        delivery=line.delivery or "",
    )
    bounds = Bounds(line.low, line.typical, line.high, line.limit)
    facts = _facts(json.dumps(line.provenance)) if line.provenance else _NO_FACTS
    return Reading(key, seconds(line.time), float(line.value), facts, bounds)


@lru_cache(4096)
def _facts(document: str) -> dict[str, str]:
    """Return the facts of a provenance, which many readings repeat."""
    return flat(json.loads(document))


@lru_cache(4096)
def seconds(time: str | int | float) -> float:
    """Return a time as seconds since 1970; raise ``ValueError`` for anything else."""
    if not isinstance(time, str):
        found = float(time)
    else:
        try:
            moment = datetime.fromisoformat(time.strip())
        except ValueError:
            raise ValueError(f"time: {time[:40]!r} is not ISO 8601") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        found = moment.timestamp()
    if not 0 <= found < 253402300800:
        raise ValueError(f"time: {time!r} is not between the years 1970 and 9999")
    return found
