# SPDX-License-Identifier: MIT
"""The results of a run as ``results.json`` has them, which anybody can have written.

What is read here is what ``busbar report`` shows and ``busbar history import`` keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from pydantic import TypeAdapter

from busbar.documents import CheckCause, CheckNote, Skipped
from busbar.engine.results import Result
from busbar.verdict import Verdict

SCHEMA = "busbar-check/1"


@dataclass(frozen=True)
class Row(Result):
    """A row of the document: a result and what it was measured with."""

    partition: str = ""
    environment: str = ""


@dataclass(frozen=True)
class RunDocument:
    """The keys of the document that a reader needs; older runs lack some."""

    site: str
    time: str
    verdict: Verdict
    results: tuple[Row, ...]
    schema: str = SCHEMA
    delivery: str = ""
    lane: str = ""
    versions: dict[str, str | None] = field(default_factory=dict)
    causes: tuple[CheckCause, ...] = ()
    notes: tuple[CheckNote, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    coverage: str = ""
    provenance: dict[str, dict[str, str]] = field(default_factory=dict)
    node_provenance: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    sessions: tuple[str, ...] = ()
    interrupted: str | None = None


@cache
def documents() -> TypeAdapter[RunDocument]:
    """Return what validates the document."""
    return TypeAdapter(RunDocument)
