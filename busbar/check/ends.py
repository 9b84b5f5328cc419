# SPDX-License-Identifier: MIT
"""What the end of a job says beside its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busbar.engine.results import Result
from busbar.slurm.jobs import JobEnd
from busbar.verdict import Verdict


@dataclass(frozen=True)
class EndedJob:
    """How a job of a check ended."""

    check: str
    status: int | None = None
    """The exit status; None if it is not known."""
    end: JobEnd | None = None
    """What the scheduler says; None if it says nothing."""
    waited: bool = False
    """Whether it was ended since it did not start in time."""
    held: str | None = None
    """The nodes that it holds although it has ended; None if it holds none."""
    starved: bool = False
    """Whether other programs kept it from ending in time."""

    @property
    def refused(self) -> list[Result]:
        """A result if somebody ended it, or it never started: that says nothing of the machine."""
        why = self.end.refused if self.end else ""
        why += ", after --max-pending" if why and self.waited else ""
        return [Result(self.check, Verdict.NOT_RUN, message=why)] if why else []


def end_of(job: EndedJob, results: Sequence[Result]) -> list[Result]:
    """Return ``results``, which are those of the output, with what the end of the job adds."""
    end, passed = job.end, not any(result.verdict.is_problem for result in results)
    if end and job.held is not None:
        return [_failed(job, end.lost(job.held)), *_printed(results)]
    if end and job.starved:
        late = Result(job.check, Verdict.UNKNOWN, message=end.problem)
        return [late, *_printed(results)]
    # An exit status says nothing new where the output has said what is wrong.
    if end and end.problem and (passed or end.state != "FAILED"):
        return [_failed(job, end.problem), *results]
    if job.status and passed:
        return [*results, _failed(job, f"the job ended with exit status {job.status}")]
    return [*results]


def _failed(job: EndedJob, message: str) -> Result:
    return Result(job.check, Verdict.FAILED, message=message)


def _printed(results: Sequence[Result]) -> list[Result]:
    """Return the results of what a program printed: if it was ended, the rest is not its fault."""
    return [
        row
        for row in results
        if row.metric
        and (row.verdict is not Verdict.FAILED or row.value or row.metric == "correctness")
    ]
