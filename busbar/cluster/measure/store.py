# SPDX-License-Identifier: MIT
"""The results of a sweep on disk; written rows survive however the sweep ends."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from busbar.boundary import replace_file
from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair, read_plan, read_results
from busbar.errors import BusbarError

PLAN = "plan.jsonl"
RESULTS = "results.jsonl"


class CannotWriteError(BusbarError):
    """The disk is full, or the directory is gone; earlier results are whole."""


class Store:
    """Plan and results of one sweep in a directory."""

    def __init__(self, directory: Path) -> None:
        self.plan_file = directory / PLAN
        self.results_file = directory / RESULTS
        self.rows: list[MeasuredPair] = []
        self._size = 0
        self._finished: set[tuple[int, str, str]] = set()

    def begin(self, plan: Sequence[PlannedPair]) -> None:
        """Start a new sweep; an earlier one is overwritten."""
        self.results_file.unlink(missing_ok=True)
        replace_file(self.plan_file, "".join(row.line() for row in plan))
        self.results_file.touch()

    def resume(self) -> list[PlannedPair]:
        """Return the plan of the sweep in the directory, and load its results.

        A line that a killed sweep did not finish is removed.
        """
        plan = read_plan(self.plan_file)
        if self.results_file.exists():
            self._cut_to(self.results_file.read_bytes().rfind(b"\n") + 1)
        if self.results_file.exists() and self.results_file.stat().st_size:
            rows = read_results(self.results_file).rows
            # What was not started is measured now, and does not count as a failure.
            self._remember([row for row in rows if row.state is not PairState.SKIPPED])
            replace_file(self.results_file, "".join(row.line() for row in self.rows))
            self._size = self.results_file.stat().st_size
        return plan

    def finished(self, pair: PlannedPair) -> bool:
        """Return whether the file has what all NICs of a pair carried together, or why not."""
        return (pair.round, pair.a, pair.b) in self._finished

    def add(self, rows: Iterable[MeasuredPair]) -> None:
        """Write rows and wait until the disk has them; raise ``CannotWriteError``."""
        new = list(rows)
        if not new:
            return
        data = "".join(row.line() for row in new).encode()
        try:
            with self.results_file.open("ab", buffering=0) as file:
                if file.write(data) != len(data):
                    raise OSError("disk full")
                os.fsync(file.fileno())
        except OSError as error:
            self._cut_to(self._size)
            raise CannotWriteError(
                f"cannot be written: {error.strerror or error}; earlier results are kept",
                where=str(self.results_file),
                hint="free some space, and continue with --resume and the same --output",
            ) from error
        self._size += len(data)
        self._remember(new)

    def _remember(self, rows: Sequence[MeasuredPair]) -> None:
        self.rows += rows
        self._finished |= {
            (row.round, row.a, row.b)
            for row in rows
            if row.nic is None and row.state is not PairState.SKIPPED
        }

    def _cut_to(self, size: int) -> None:
        try:
            os.truncate(self.results_file, size)
        except OSError:
            return  # readers leave an unfinished line out
