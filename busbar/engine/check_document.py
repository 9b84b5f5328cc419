# SPDX-License-Identifier: MIT
"""The document of a run of the checks: ``busbar check`` writes it, and others read it back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from busbar.engine.reading import Cause, Note
from busbar.engine.results import Result
from busbar.verdict import Verdict


@dataclass(frozen=True)
class _OfCheck:
    check: str
    """Check and its parameters, as ReFrame shows them."""


@dataclass(frozen=True)
class CheckCause(Cause, _OfCheck):
    """A cause of ``busbar check``."""


@dataclass(frozen=True)
class CheckNote(Note, _OfCheck):
    """A note of ``busbar check``."""


@dataclass(frozen=True)
class Skipped:
    """A check that was selected but cannot run on this site."""

    check: str
    """Check and its parameters."""
    reason: str
    """The feature that is missing, and why."""


@dataclass(frozen=True)
class ResultRow(Result):
    """One reading, or one thing that went wrong."""

    partition: str = ""
    """Partition of the site; empty if the result is not of a job."""
    environment: str = ""
    """ReFrame's environment: delivery and lane."""


@dataclass(frozen=True, kw_only=True)
class CheckDocument:
    """The results of one run of the checks; also written to ``results.json``.

    A key with a default is missing in files of older versions.
    """

    schema: Literal["busbar-check/1"] = "busbar-check/1"
    """The schema of this document."""
    site: str
    """Name of the site."""
    time: str
    """ISO 8601, UTC."""
    delivery: str = ""
    """How the stack reached the jobs."""
    lane: str = ""
    """The UCX lane: ``ucx-1.14`` or ``ucx-current``; for a prefix, the MPI family."""
    versions: dict[str, str | None] = field(default_factory=dict)
    """``mpi``, ``ucx``, ``gpu_driver``, and one key for each benchmark."""
    results: tuple[ResultRow, ...]
    """Every reading and everything that went wrong."""
    causes: tuple[CheckCause, ...] = ()
    """Why results are not a pass."""
    skipped: tuple[Skipped, ...] = ()
    """Selected checks that did not run."""
    notes: tuple[CheckNote, ...] = ()
    """Facts that are not faults."""
    coverage: str = ""
    """How many nodes of a cluster were tested, and why others were not; empty elsewhere."""
    provenance: dict[str, dict[str, str]] = field(default_factory=dict)
    """By check: what all its jobs had, such as ``driver`` and ``lock.libfabric``."""
    node_provenance: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    """By check and ``where``, for checks with several jobs: what not all of them had."""
    sessions: tuple[str, ...] = ()
    """ReFrame's ids of the sessions of the run."""
    interrupted: str | None = None
    """The signal that ended the run: ``SIGINT``, ``SIGTERM``, ``SIGHUP``, or ``SIGKILL`` if the
    command was killed; null if the run came to its end."""
    verdict: Verdict
    """The worst verdict of the results; ``unjudged`` counts only if no result was judged."""
