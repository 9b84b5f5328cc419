# SPDX-License-Identifier: MIT
"""The outcome of a ReFrame case: the check's results, the end of its job, or its failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from busbar.check.names import without_place
from busbar.engine.busy import loads
from busbar.engine.results import DIGEST, RESULTS_FILE, Outcome, Result, digest_of
from busbar.engine.run import Run
from busbar.parse.submission import no_space, not_run
from busbar.parse.text import Source
from busbar.site import Site
from busbar.slurm.jobs import JobEnd
from busbar.verdict import Verdict

_TIMED_OUT = "job timed out"
"""ReFrame's message for a job that it ended at its time limit."""
_JUDGED = (None, "setup", "sanity", "performance")
"""The phases in which a check can leave its outcome; in setup, for a broken image."""


def outcome_of(
    case: dict[str, Any], site: Site, lane: str, output: Path, nodes: str = ""
) -> Outcome:
    """Return the check's outcome; without one, an outcome with ReFrame's reason.

    ``case`` comes from ReFrame's report; the run was limited to ``nodes``.
    """
    kept = case["outputdir"] if case["result"] == "pass" else case["stagedir"]
    directory = Path(kept) if kept else output  # a skipped check has no directory
    left = directory / RESULTS_FILE
    name = case["name"].split(" ")[0]
    partition, environment = case["partition"] or "", case["environ"] or ""
    none = Outcome(name, lane, (), partition, environment)
    if case["result"] == "abort":
        return interrupted(name, lane, f"it was interrupted; see {directory}")
    if kept and left.exists() and case["fail_phase"] in _JUDGED:
        try:
            if case.get(DIGEST) != digest_of(left):
                raise ValueError(f"{RESULTS_FILE} was not written by this run of the check")
            outcome = _of_case(Outcome.read(left), case)
        except ValueError as error:
            return Outcome.failed(name, lane, f"{error}; see {directory}")
        if case["result"] == "pass" or outcome.verdict.is_problem:
            return outcome
    if refusal := _not_run(case, directory):
        return replace(none, results=(Result(name, Verdict.NOT_RUN, message=refusal),))
    message = _reason(case, directory)
    files = [
        directory / case[key]
        for key in ("job_stdout", "job_stderr", "build_stdout", "build_stderr")
        if case[key] and (directory / case[key]).exists()
    ]
    # Slow to import, and not needed by a run that ends well.
    from busbar.check.causes import explained, read_rest, source_of  # noqa: PLC0415

    run = Run(site=site, partition=case["partition"])
    outputs = read_rest(map(source_of, files))
    late = _TIMED_OUT in message and any(
        load.starves for facts in outputs for load in loads(facts, run)
    )
    verdict = Verdict.UNKNOWN if late else Verdict.FAILED
    where = ",".join(case["job_nodelist"] or ())
    result = Result(name, verdict, where=where, message=f"{message}; see {directory}")
    outcome = replace(none, results=(result,), nodes=nodes if case["job_nodelist"] else "")
    if not files:
        return outcome
    outputs += read_rest([Source.from_text("reframe.log", message)])
    return explained(outcome, (), outputs, run)


def _not_run(case: dict[str, Any], directory: Path) -> str:
    """Return the scheduler's or system's message why nothing ran; empty if there is none."""
    if case["result"] == "fail_deps":
        return "a check that it depends on failed"
    phase = case["fail_phase"] or ""
    message = case["fail_reason"] or ""
    if phase.startswith("compile"):
        return no_space(message + _build_errors(case, directory))
    words = not_run(message) if phase.startswith(("setup", "run")) else ""
    if not words.startswith("Slurm refused"):
        return words
    return f"{words}; see access of partition {case['partition']} in site.yaml"


def _of_case(outcome: Outcome, case: dict[str, Any]) -> Outcome:
    """Read a check's outcome; raise ``ValueError`` if it belongs to another run."""
    check = without_place(outcome.check)
    outcome = replace(
        outcome, check=check, results=tuple(replace(row, check=check) for row in outcome.results)
    )
    left = (check, outcome.partition, outcome.environment)
    ran = (without_place(case["display_name"]), case["partition"], case["environ"])
    for name, mine, theirs in zip(("check", "partition", "environment"), left, ran, strict=True):
        if mine != theirs and (name, mine) != ("check", without_place(case["name"])):
            raise ValueError(f"{RESULTS_FILE} is for {name} {mine!r}, but {theirs!r} ran")
    return outcome


def _reason(case: dict[str, Any], directory: Path) -> str:
    """Why the check did not reach its judgement: ReFrame's message, or the compiler's."""
    text = case["fail_reason"] or f"ReFrame says: {case['result']}"
    reason = text.strip().splitlines()[0]
    if (case["fail_phase"] or "").startswith("compile"):
        lines = _build_errors(case, directory).splitlines()
        errors = [line for line in lines if "error" in line.lower()]
        reason += f": {errors[0]}" if errors else ""
    return reason


def _build_errors(case: dict[str, Any], directory: Path) -> str:
    log = directory / (case["build_stderr"] or "")
    return log.read_text(errors="backslashreplace") if log.is_file() else ""


def interrupted(check: str, lane: str, message: str) -> Outcome:
    """Return the outcome of a check ended by a signal."""
    return Outcome(check, lane, (Result(check, Verdict.UNKNOWN, message=message),))


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
        """A result if the job was cancelled or never started: not a fault of the machine."""
        why = self.end.refused if self.end else ""
        why += ", after --max-pending" if why and self.waited else ""
        return [Result(self.check, Verdict.NOT_RUN, message=why)] if why else []


def end_of(job: EndedJob, results: Sequence[Result]) -> list[Result]:
    """Return ``results``, read from the output, with what the end of the job adds."""
    end, passed = job.end, not any(result.verdict.is_problem for result in results)
    if end and job.held is not None:
        return [_failed(job, end.lost(job.held)), *_printed(results)]
    if end and job.starved:
        return [Result(job.check, Verdict.UNKNOWN, message=end.problem), *_printed(results)]
    # An exit status says nothing new where the output has said what is wrong.
    if end and end.problem and (passed or end.state != "FAILED"):
        return [_failed(job, end.problem), *results]
    if job.status and passed:
        return [*results, _failed(job, f"the job ended with exit status {job.status}")]
    return [*results]


def _failed(job: EndedJob, message: str) -> Result:
    return Result(job.check, Verdict.FAILED, message=message)


def _printed(results: Sequence[Result]) -> list[Result]:
    """Return the results in a program's output; if it was stopped, missing ones are not faults."""
    return [
        row
        for row in results
        if row.metric
        and (row.verdict is not Verdict.FAILED or row.value or row.metric == "correctness")
    ]
