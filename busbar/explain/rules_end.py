# SPDX-License-Identifier: MIT
"""Causes at the end of a run: time limits, crashes, ranks out of step, cut or odd output."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from busbar.engine.assertions import contradictions
from busbar.engine.job_output import UNNAMED, JobOutput, Occurrence
from busbar.engine.reading import Evidence, Reading
from busbar.explain.catalog import SHOWN_BY_MESSAGES, cause, declare
from busbar.explain.rules import Context, Finding, failure, finding
from busbar.explain.rules_ranks import is_own, raised, waited, went_on
from busbar.parse import numbers
from busbar.parse.events import Error, Rank
from busbar.parse.owners import has_words
from busbar.parse.severe import excuses
from busbar.parse.tables import beside
from busbar.verdict import Verdict

declare("above-limit", "invalid-reading", "below-band-unexplained")

_TIMEOUT_STATUS = 124  # coreutils timeout
_MEMORY_GB_PER_S = 25_000.0
"""More than the memory of any GPU carries: HBM4 of Rubin has 22 TB/s."""


# ---- time limits
_MOST_NAMED = 100
"""Ranks that one sentence names."""


@cause("timeout", hides=["truncated-output"])
def timeout(context: Context) -> Iterator[Finding]:
    """The scheduler or the exit status shows that a time limit was reached.

    It says nothing of the machine if other programs took the CPUs.
    """
    facts = context.facts
    if not _timed_out(facts):
        return
    status = facts.exit_status
    present = {rank.rank for rank, _ in facts.events_of(Rank)}
    ranks = range(min(context.ranks or 0, len(present) + _MOST_NAMED)) if present else ()
    silent = [rank for rank in ranks if rank not in present]
    texts = (each["text"].strip() for each in facts.seen("timeout"))
    in_kernel = next((text for text in texts if "DeepEP" in text), "")
    summary = in_kernel or waited(facts) or "the run reached its time limit"
    summary += f"; rank {', '.join(map(str, silent))} printed nothing" if silent else ""
    effect = Verdict.UNKNOWN if context.starving else Verdict.FAILED
    by_status = status if status and status.code == _TIMEOUT_STATUS else None
    hides = ["gpu-program-fault"] if in_kernel else []
    yield failure(summary, facts.first("timeout"), by_status, effect=effect, hides=hides)
    for load in context.starving:
        yield finding(load.summary, load.evidence, certain=False, effect=effect, id_=load.cause)


def _timed_out(facts: JobOutput) -> bool:
    status = facts.exit_status
    return bool(facts.first("timeout") or (status and status.code == _TIMEOUT_STATUS))


# ---- crashes
_COMPLAINS, _TEARDOWN, _INTRODUCES, _BY_OTHERS, _BY_SIGTERM = (
    re.compile(beside(__file__)[name])
    for name in ("complains", "teardown", "introduces", "by-others", "by-sigterm")
)


@cause("rank-died", "job-cancelled", hides=["truncated-output"])
def rank_died(context: Context) -> Finding | None:
    """Launchers report a signal, an abort or an exit code, or the exit status is not 0."""
    facts = context.facts
    if root := _cancelled(context) or raised(context):
        return root
    ignored = went_on(facts)
    kinds = [kind for kind in facts.messages if kind.startswith(("died", "tests.failure"))]
    found = [s for kind in kinds for s in facts.seen(kind) if s.evidence not in ignored]
    deaths = sorted(
        found, key=lambda s: (bool(_INTRODUCES.search(s.evidence.text)), s.evidence.line)
    )
    errors = facts.events_of(Error)
    # After a time limit srun reports its own kill in the same words.
    if _timed_out(facts):
        # Messages of the ranks that it kills are not causes either.
        deaths = facts.seen("died.oom") + facts.seen("died.signal")
        errors = []
    else:
        whole = facts.readings or facts.finished or facts.step
        deaths += [
            s
            for s in facts.seen("trouble") + (_severe(facts) if whole else [])
            if not whole or (context.ends(s.evidence) and not _TEARDOWN.search(s.evidence.text))
        ]
        cut = not whole and not facts.seen("error-ignored")
        deaths = deaths or (facts.seen("python.frame") if cut else [])
    status = facts.exit_status
    failed = status is not None and status.code not in (0, _TIMEOUT_STATUS)
    if not deaths and not errors and not failed:
        line = unclear(context) if context.of_check else None  # a log has other programs
        if not line or (status and status.evidence.is_before(line)):
            return None  # after the launch has ended, the site prints what it likes
        return failure(line.text.strip(), line, certain=False, effect=Verdict.UNKNOWN)
    # A message that was joined from two lines is at the place of its first line.
    places = {(s.evidence.file, s.evidence.line): s.evidence for s in reversed(deaths)}
    lines = [*places.values()][:-4:-1] or [e for _, e in errors[:3]]
    nodes = [facts.places[kind] for kind in kinds if kind in facts.places and deaths]
    lines += [line for line in nodes[:1] if line not in lines]
    if not lines and status:
        lines = [status.evidence]
    first = deaths[0].evidence.text if deaths else errors[0][0].text if errors else ""
    summary = first.strip() or f"exit status {status.code if status else ''}"
    return failure(summary, *lines, _reason(facts, lines), certain=False)


_FAULTS = ("died.oom", "died.node", "died.ras")
"""What no cancellation brings about: a job that is queued again can fail after it."""


def _cancelled(context: Context) -> Finding | None:
    """Return that a job was cancelled or preempted, if no rank failed before that."""
    facts = context.facts
    ends = facts.seen("died.cancelled")
    if not ends or _timed_out(facts) or facts.events_of(Error):
        return None
    # Slurm cancels a step alone if one of its ranks failed, and says so after or before that.
    of_job = [each for each in ends if "*** STEP " not in each.evidence.text]
    first = (of_job or ends)[0].evidence
    for kind in facts.messages:
        ends_a_run = kind.startswith(("died", "trouble", "tests.")) and kind != "died.cancelled"
        for seen in facts.seen(kind) if ends_a_run else ():
            line, fault = seen.evidence, kind in _FAULTS or is_own(seen.fields.get("text", ""))
            before = line.is_before(first)
            # A daemon may report the SIGTERM of a cancelled job before another one reports that.
            words = _BY_SIGTERM if before and of_job else _BY_OTHERS
            ended = words.search(line.text) and (of_job or not before)
            if not ended and (fault or not of_job or not first.is_before(line)):
                return None
    effect, text = Verdict.PASS if facts.finished else Verdict.NOT_RUN, first.text.strip()
    launch = [*facts.seen("launch-failed.certain"), *facts.seen("launch-failed.likely")]
    hides = ["launch-failed"] * all(_BY_SIGTERM.search(each.evidence.text) for each in launch)
    certain = bool(of_job)
    return failure(text, first, id_="job-cancelled", certain=certain, effect=effect, hides=hides)


def _severe(facts: JobOutput) -> list[Occurrence]:
    """Return severe lines; of a program that only its words show, those with such words."""
    named = facts.step != UNNAMED
    return [s for s in facts.seen("severe") if named or has_words(s.evidence.text.encode())]


def unclear(context: Context) -> Evidence | None:
    """Return a line after all results that says in whatever words that something is not well."""
    lines = [s.evidence for s in context.facts.seen("unclear") if context.results]
    if ended := context.facts.first("died.cancelled"):
        lines = [line for line in lines if line.is_before(ended.evidence)]
    return next(filter(context.is_after_results, lines), None)


def _reason(facts: JobOutput, lines: Sequence[Evidence]) -> Evidence | None:
    """Return the nearest line that can say why a run ended, if ``lines`` do not have it."""
    return None if facts.complaint in lines else facts.complaint


# ---- cut output
@cause("truncated-output")
def truncated(context: Context) -> Finding | None:
    """The output stops inside a row or record, or a message says why it has no more rows.

    The lines that a table lacks prove nothing: whoever posts a table leaves rows out.
    """
    facts = context.facts
    if context.starving and _timed_out(facts):
        return None
    if facts.finished or not (facts.tool or facts.incomplete or facts.pending):
        return None
    line, summary = _where_cut(context)
    if not (line and summary):
        return None
    return failure(summary, line, _reason(facts, [line]), certain=False)


def _where_cut(context: Context) -> tuple[Evidence | None, str]:
    """Return the line where the output stops, and what is missing; empty if nothing shows it."""
    facts = context.facts
    if facts.incomplete:
        return facts.incomplete, "the input ends inside a record"
    if facts.pending:
        return facts.pending, "a result row is incomplete"
    if facts.tool == "nccl_message_transfer":
        started = facts.first("ofi.process")
        cut = started and len(set(facts.values("ofi.completions", "rank"))) < 2
        summary = "not every rank reports that its messages completed"
        return (started.evidence, summary) if started and cut else (None, "")
    if facts.tool in ("gpu_aware", "torch_collectives") and facts.launches:
        last = facts.readings[-1].evidence if facts.readings else None
        return last or facts.launches[-1], "the program's last line is missing"
    line = next((r.evidence for r in reversed(facts.readings) if r.evidence), None)
    line = line or (facts.launches[-1] if facts.table_seen and facts.launches else None)
    summary = missing_sizes(context) or ("" if facts.readings else "the table has no rows")
    return line, summary if line and _ended_badly(facts, line) else ""


def missing_sizes(context: Context) -> str:
    """Return what a table lacks of the sizes that were requested; empty if it lacks none."""
    facts = context.facts
    largest = max((r.nbytes for r in facts.readings), default=-1)
    requested = facts.max_bytes or _requested_size(context)
    if facts.finished or not requested or not 0 <= largest < requested * 0.9:
        return ""
    return f"the last size is {largest} bytes, {requested} were requested"


def of_another_program(context: Context) -> Evidence | None:
    """Return a line that says that a program failed, maybe another one than that which measured.

    It is before what measured, or is a warning of NCCL after it.
    """
    facts = context.facts
    fatal = {"trouble", "severe", "pmix", "nccl.warn", *SHOWN_BY_MESSAGES} & facts.messages.keys()
    found = [s.evidence for kind in fatal for s in facts.seen(kind) if context.may_end(s.evidence)]
    if context.results:
        found += [s.evidence for s in facts.seen("nccl.warn") if context.ends(s.evidence)]
    ending = (line for line in found if not _TEARDOWN.search(line.text))
    return min(ending, key=lambda line: line.line, default=None)


def _ended_badly(facts: JobOutput, last: Evidence) -> bool:
    """Return whether a message after the last line of a table says that the program failed."""
    complaint = facts.complaint
    return bool(
        complaint
        and last.is_before(complaint)
        and _COMPLAINS.search(complaint.text)
        and {*excuses(complaint.text.encode())} <= {"survived"}
    )


def _requested_size(context: Context) -> int | None:
    asked = (command.option("-m") for command, _ in context.facts.commands)
    return numbers.whole(next(filter(None, asked), "").rsplit(":", 1)[-1])


# ---- odd figures
@cause("invalid-reading")
def no_number(context: Context) -> Iterator[Finding]:
    """Readings are not rates, exceed any memory rate, or contradict each other."""
    measured = [] if is_alone(context.facts, context.ranks) else context.facts.readings
    odd = [r for r in measured if r.evidence and _impossible(r)]
    odd += _without_traffic(measured)
    if odd:
        summary = f"{odd[0].kind} of {odd[0].value:g} at {odd[0].nbytes} bytes is not a rate"
        yield failure(summary, *[*dict.fromkeys(r.evidence for r in odd)][:3])
        return
    for text, line in contradictions(context.facts, context.operation, context.ranks):
        yield failure(text, line)


def is_alone(facts: JobOutput, ranks: int | None) -> bool:
    """Return whether nccl-tests ran one rank, whose bus bandwidth is 0 by definition.

    Rows without their header do not say how many ranks ran: it was one if all have 0, though data
    moved at a rate that two decimals show.
    """
    rates = [r.value for r in facts.readings if r.kind == "busbw"]
    moved = ranks is None and any(_without_traffic(facts.readings))
    one = facts.tool == "nccl-tests" and (ranks == 1 or moved) and len(facts.launches) < 2
    return one and bool(rates) and not any(rates)


def _impossible(reading: Reading) -> bool:
    rate = reading.kind != "latency_us"
    return (
        not math.isfinite(reading.value)
        or reading.value < 0
        or (rate and reading.value > _MEMORY_GB_PER_S)
    )


def _without_traffic(readings: Sequence[Reading]) -> list[Reading]:
    """Return bus bandwidths of 0 with a large algorithm bandwidth: no data left the GPU."""
    rates = {(r.evidence, r.in_place): r.value for r in readings if r.kind == "algbw"}
    return [
        r
        for r in readings
        if r.kind == "busbw"
        and r.value == 0
        and r.evidence
        and rates.get((r.evidence, r.in_place), 0.0) >= 1
    ]
