# SPDX-License-Identifier: MIT
"""Busbar's JSON lines: one object for each reading, in any order."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from busbar.history.provenance import flat
from busbar.history.record import HistoryRecord, Measured
from busbar.parse import numbers
from busbar.units import seconds

_Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""Text; null is none."""
_NO_FACTS: dict[str, str] = {}
_OF_RECORD = ("site", "partition", "check", "lane", "delivery")
_OF_ROW = ("node", "metric", "unit", "low", "typical", "high", "limit")


class JsonLine(BaseModel):
    """One reading. Other keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    time: str | int | float
    """ISO 8601, UTC if it names no zone; or seconds since 1970."""
    site: str = Field("", validation_alias=AliasChoices("site", "system"))
    """The system that was measured."""
    partition: _Text = ""
    """Partition of the system."""
    node: _Text = ""
    """The node, or several with commas."""
    check: _Text = ""
    """The check or benchmark."""
    metric: str = Field(min_length=1)
    """What was measured, with its size: ``busbw 16 MiB``."""
    unit: _Text = ""
    """``GB/s``, ``us``...; of a time, less is better."""
    value: int | float
    """The reading."""
    lane: _Text = ""
    """Lane of UCX or family of MPI."""
    delivery: _Text = ""
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


def parse(lines: Iterable[str]) -> Iterator[HistoryRecord]:
    """Parse lines; raise ``ValueError`` with the number of the first wrong one."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _record(line)
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
    alternatives = len(first["loc"]) > 1 and key in JsonLine.model_fields
    return f"{key}: has the wrong type" if alternatives else f"{key}: {first['msg']}"


def _record(text: str) -> HistoryRecord:
    line = JsonLine.model_validate(numbers.load_json(text))
    if not math.isfinite(line.value):
        raise ValueError("value: is not a finite number")
    row = Measured(value=float(line.value), **{name: getattr(line, name) for name in _OF_ROW})
    return HistoryRecord(
        time=_seconds(line.time),
        rows=(row,),
        provenance=_facts(json.dumps(line.provenance)) if line.provenance else _NO_FACTS,
        **{name: getattr(line, name) for name in _OF_RECORD},
    )


_seconds = lru_cache(4096)(seconds)


@lru_cache(4096)
def _facts(document: str) -> dict[str, str]:
    """Return the facts of a provenance, which many readings repeat."""
    return flat(json.loads(document))
