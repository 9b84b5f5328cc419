# SPDX-License-Identifier: MIT
"""Puts an explanation together: facts, what was expected, what the rules find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from busbar.engine.busy import loads
from busbar.engine.collect import collect
from busbar.engine.identify import (
    from_output,
    named_operation,
    nodes_of,
    ranks_of,
    recognise_site,
    shown_engine,
    sites_like,
)
from busbar.engine.inputs import named
from busbar.engine.job_output import JobOutput
from busbar.engine.judge import JudgedLaunch, OutputJudgement, judge_output
from busbar.engine.reading import Cause, Consequence, Note
from busbar.engine.run import Run
from busbar.engine.tool import tool_of
from busbar.engine.verdicts import Judged
from busbar.errors import BusbarError, file_error
from busbar.explain import notes as note_rules
from busbar.explain.catalog import CAUSES, hidden_by
from busbar.explain.elsewhere import CONSEQUENCES, before_the_end, elsewhere
from busbar.explain.model import UNKNOWN_TOOL, Explanation
from busbar.explain.rulebook import PATTERNS, RULES
from busbar.explain.rules import Context, Explains, Finding, finding
from busbar.explain.rules_end import is_alone, missing_sizes, of_another_program, unclear
from busbar.explain.timeline import Position
from busbar.explain.without_band import asked_versions, other_gpus, unjudged
from busbar.parse.events import Check, Rank
from busbar.parse.tables import beside
from busbar.parse.text import Source
from busbar.site.model import Site
from busbar.tools.nccl_tests.answer import columns_operation
from busbar.tools.nccl_tests.read import rows_of
from busbar.units import format_bytes
from busbar.verdict import Verdict
from busbar.words import names_text

_MOST_LINES = 4
_EXPECTED = """expected the output of OSU, nccl-tests, rccl-tests, gpu_aware, NCCL_DEBUG, UCX, \
MPI or Slurm, or a known error message"""


def explain(
    files: Sequence[Path | Source],
    *,
    site: Site | None = None,
    engine: str | None = None,
    known: Run | None = None,
    asked: Mapping[str, str] | None = None,
) -> list[Explanation]:
    """Explain each run in ``files``, which are the outputs of one job.

    ``site`` gives the limits and bands; without it the one that the output names. ``engine`` is
    ``sdma`` or ``kernel`` on AMD GPUs. ``known`` is what is known of the runs, instead of these
    two. ``asked`` gives versions that the run should have had, by ``nccl``, ``cuda`` and ``ucx``;
    a version is met by any that begins with it. Raises ``BusbarError`` for a file that cannot be
    read and for input in which nothing is recognised.
    """
    with ExitStack() as archives, file_error("cannot be read", hint="check the path"):
        sources = [
            s for f in files for s in ([f] if isinstance(f, Source) else named(f, archives))
        ]
        outputs = collect(sources, PATTERNS)
    outputs = [output for output in outputs if not output.empty]
    if not any(output.known for output in outputs):
        sizes = [f.stat().st_size for f in files if isinstance(f, Path) and f.is_file()]
        what = "no known tool output found" if any(sizes) or not sizes else "is empty"
        where = names_text([f.name if isinstance(f, Source) else str(f) for f in files])
        raise BusbarError(what, where=where, hint=_EXPECTED)
    known = known or Run(site=site, engine=engine)
    return [explain_output(output, known, asked=asked or {}) for output in outputs]


def explain_output(
    facts: JobOutput, known: Run, verdict: Verdict | None = None, *, asked: Mapping[str, str]
) -> Explanation:
    """Explain a run by its output and other ``known`` facts.

    ``verdict`` is what a check has found; the output can only make it worse.
    """
    ranks, nodes = ranks_of(facts), nodes_of(facts)
    operation, notes = _operation(facts, ranks)
    if known.site and (other := other_gpus(facts, known.site)):
        notes.append(other)
        if other.id == "other-vendor":
            known = replace(known, site=None, partition="")
    if known.site is None:
        known = replace(known, site=recognise_site(facts, nodes))
        if known.site:
            notes.append(
                Note("site-recognised", f"the devices are those of site {known.site.name}")
            )
    if known.site and known.partition:
        known.site.node_type(known.partition)  # refuses one that the site does not have
    ranks, nodes = ranks or known.ranks, nodes or known.nodes
    run = from_output(replace(known, ranks=ranks, nodes=nodes), facts, operation)
    tool = tool_of(facts.tool)
    readings = [*facts.readings, *(tool.derived(run, facts.readings) if tool else ())]
    if verdict is None and is_alone(facts, ranks):
        readings = []  # one rank measures no link
    judgement = judge_output(run, readings, loads(facts, run))
    return _explanation(facts, run, judgement, (operation, notes), verdict=verdict, asked=asked)


def explain_launch(
    launch: JudgedLaunch, verdict: Verdict, asked: Mapping[str, str]
) -> Explanation:
    """Explain a launch by what was found when it was judged; ``verdict`` is that of its check."""
    facts, run = launch.shown.facts, launch.run
    named = _operation(facts, ranks_of(facts))
    run = replace(run, engine=run.engine or shown_engine(facts))
    return _explanation(facts, run, launch.judgement, named, verdict=verdict, asked=asked)


def _explanation(
    facts: JobOutput,
    run: Run,
    judgement: OutputJudgement,
    named: tuple[str | None, list[Note]],
    *,
    verdict: Verdict | None,
    asked: Mapping[str, str],
) -> Explanation:
    """Explain a judged run; ``named`` is its operation, with notes on it."""
    operation, notes = named
    ranks, nodes = ranks_of(facts) or run.ranks, nodes_of(facts) or run.nodes
    excused = judgement.excused or verdict is Verdict.UNKNOWN
    shown = judgement.banded, judgement.dips, operation
    context = Context(facts, run, *shown, ranks, nodes, judgement.loads, excused, bool(verdict))
    findings = [finding for rule in RULES for finding in rule(context)]
    findings += () if judgement.banded else unjudged(context)
    findings += asked_versions(context, asked)
    apart = [(each, elsewhere(each, context)) for each in findings]
    findings = before_the_end([each for each, note in apart if not note])
    notes += [note for _, note in apart if note]
    outcome = judgement.verdict(
        verdict or (None if facts.readings else _measured(facts)),
        [finding.effect for finding in findings],
        explained=any(f.explains is Explains.SLOW and f.confidence == "certain" for f in findings),
    )
    partial = missing_sizes(context) or facts.not_kept or facts.runs_dropped_from
    partial = partial or of_another_program(context) or unclear(context)
    if outcome is Verdict.PASS and verdict is None and partial:
        # What was not read can be worse; the largest sizes show the rate.
        outcome = Verdict.UNJUDGED
    if judgement.waived and not outcome.is_problem:
        notes.append(_waived(judgement.waived[0]))
    if not judgement.banded and facts.readings and judgement.judged:
        sites = [] if run.site else [site.name for site in sites_like(facts, nodes)]
        hint = f"; pass --site: such GPUs have {', '.join(sites)}" if sites else ""
        told = {"site": run.site.name} if run.site else {}
        text = f"no band was applied: {judgement.why}{hint}"
        notes.append(Note("no-band", text, details=told))
    causes = _select(findings, outcome, context)
    notes += note_rules.notes(context, outcome, {cause.id for cause in causes}, findings)
    versions = facts.values("nccl.version", "version")
    return Explanation(
        files=tuple(facts.files),
        tool=facts.tool or next(iter(facts.reports), "") or _library(facts),
        step=facts.step,
        version=facts.version or (None if facts.tool else next(versions, None)),
        ranks=ranks,
        nodes=nodes,
        readings=tuple(facts.readings),
        judged=tuple(judgement.judged),
        verdict=outcome,
        causes=tuple(causes),
        notes=tuple(notes),
        operation=operation,
        site=run.site.name if run.site and judgement.banded else None,
        hosts=tuple(facts.hosts)[:1024],
        devices=_device_names(facts),
        libraries=_libraries(facts) if facts.tool else (),
    )


def _waived(slow: Judged) -> Note:
    return Note(
        "slow-at-one-size",
        f"{slow.reading.value:.4g} at {format_bytes(slow.reading.nbytes)} is worse than its band"
        f" ({slow.bound:.4g}); at one size of many this is noise",
    )


_LIBRARIES = beside(__file__)


def _library(facts: JobOutput) -> str:
    """Name the library whose messages the input has, for an input without a benchmark."""
    families = {kind.partition(".")[0] for kind in facts.messages}
    return next((name for each, name in _LIBRARIES.items() if each in families), UNKNOWN_TOOL)


def _libraries(facts: JobOutput) -> tuple[str, ...]:
    name = "RCCL" if any(kind.startswith("rccl.") for kind in facts.messages) else "NCCL"
    nccl = [f"{name} {v}" for v in sorted(set(facts.values("nccl.version", "version")))]
    ucx = [f"UCX {v}" for v in sorted(set(facts.values("ucx.version", "version")))]
    return (*nccl, *ucx)


def _device_names(facts: JobOutput) -> tuple[str, ...]:
    listed = sorted(facts.devices.values(), key=lambda d: d.rank)[:1024]
    if listed:
        return tuple(f"rank {d.rank}: {d.host} {d.device} [{d.bus}] {d.name}" for d in listed)
    return tuple(
        f"rank {rank.rank}: {rank.host} [{rank.device}] {rank.device_name}"
        for rank, _ in facts.events_of(Rank)
        if rank.device
    )[:1024]


def _operation(facts: JobOutput, ranks: int | None) -> tuple[str | None, list[Note]]:
    named = named_operation(facts)
    fits = columns_operation(facts, ranks)
    if named and (not fits or named[0] in fits):
        return named[0], []
    if not fits:
        return None, []
    inferred = "reduce_scatter" if "reduce_scatter" in fits else sorted(fits)[0]
    choice = " or ".join(sorted(fits))
    row = next(e for r, e in reversed(rows_of(facts)) if r.count)
    if named:
        lines = (row,) if named[1] is None else (named[1], row)
        summary = f"the output is called {named[0]}, its columns are those of {choice}"
        return inferred, [Note("mislabelled-collective", summary, lines)]
    return inferred, [Note("collective-inferred", f"the columns belong to {choice}", (row,))]


def _measured(facts: JobOutput) -> Verdict:
    """Return the verdict of a run without readings: it passes only if it shows its completion."""
    if facts.tool == "nccl_message_transfer":
        done = set(facts.values("ofi.completions", "rank"))
        return Verdict.PASS if len(done) >= 2 else Verdict.FAILED
    if facts.events_of(Check) and facts.finished:
        return Verdict.PASS
    return Verdict.UNJUDGED


# ---- the findings that explain the verdict
_OUT_OF_STEP = ("collective-mismatch", "rank-late", "rank-silent")
"""Causes that are known from the ranks that waited, and have no line and time of their own."""


def _select(findings: Sequence[Finding], outcome: Verdict, context: Context) -> list[Cause]:
    """Return the causes that explain ``outcome``; none for a pass.

    What failed first is the first cause if times show it, otherwise what is certain.
    """
    if not outcome.is_problem:
        return []
    # A run that was slow until its time limit ended it is explained by what made it slow.
    slow = any(f.id == "timeout" for f in findings) and (
        any(j.is_slow for j in context.judged) or any(f.id == "host-staging" for f in findings)
    )
    relevant = [
        f for f in findings if _accounts_for(f, outcome) or (slow and f.explains is Explains.SLOW)
    ]
    places = {id(f): _place(f, outcome, context) for f in relevant}
    follows = {
        id(f): [g for g in relevant if _hides(f, g) and not _is_older(g, f, places)]
        for f in relevant
    }
    hidden = {each.id for those in follows.values() for each in those}
    explicit = [f for f in relevant if f.id not in hidden and f.id != "below-band-unexplained"]
    if not explicit:
        explicit = [f for f in relevant if f.id not in hidden]
        explicit = explicit or _unexplained(outcome, context.judged)
    causes: dict[tuple[str, int | None], Cause] = {}
    for f in sorted(explicit, key=lambda f: _rank(f, outcome)):
        place = places.get(id(f)) or _place(f, outcome, context)
        after = tuple(
            Consequence(each.id, each.summary, each.evidence, places[id(each)].time)
            for each in follows.get(id(f), ())
            if each.id in CONSEQUENCES and each.evidence[:1] != f.evidence[:1]
        )
        remedy = CAUSES[f.id].remedy_for(context.facts, f.evidence)
        own = Cause(
            *(f.id, f.confidence, f.summary, f.evidence, remedy, f.details),
            **vars(place),
            consequences=after,
        )
        # Another log may show the same: the kernel's Xid beside the CUDA error.
        first = causes.get(key := (f.id, f.details.get("rank")), own)
        lines = tuple(dict.fromkeys((*first.evidence, *own.evidence)))
        causes[key] = replace(first, evidence=lines[: max(_MOST_LINES, len(first.evidence))])
    return list(causes.values())


def _rank(found: Finding, outcome: Verdict) -> tuple[bool, bool, bool]:
    """Return the order of causes: what ended a run, before what made it slow."""
    slow = outcome is Verdict.FAILED and found.explains is not Explains.FAILURE
    return slow, not found.hides, found.confidence != "certain"


def _place(found: Finding, outcome: Verdict, context: Context) -> Position:
    """Return place and time of the first line of a finding that shows a rank or a host."""
    if (rank := found.details.get("rank")) is not None:
        return context.place(next(iter(found.evidence), None), rank)
    if outcome is not Verdict.FAILED:
        return Position()  # all ranks have what makes a run slow
    places = [context.place(line) for line in found.evidence[:3]]
    named = (each for each in places if each.rank is not None or each.host)
    return next(named, places[0] if places else Position())


def _hides(one: Finding, other: Finding) -> bool:
    """Return whether a finding is a consequence; ranks out of step bring no exception about."""
    first = other.hides and one.id in (*other.hides, *_OUT_OF_STEP)
    if other.id == one.id or first or other.id not in {*hidden_by(one.id), *one.hides}:
        return False
    weak = one.confidence == "likely" and one.effect is Verdict.PASS
    return not (weak and other.id in ("rank-died", "job-cancelled"))


def _is_older(one: Finding, other: Finding, places: Mapping[int, Position]) -> bool:
    """Return whether a finding is older than another by the times, or lines, of one file.

    The lines of one process are in order, the lines of several are not. A death is reported
    before what explains it: the frames of a backtrace, a core file.
    """
    lines = [line for f in (one, other) for line in f.evidence[:1]]
    if one.id == "rank-died" or (other.id in _OUT_OF_STEP and one.id in CONSEQUENCES):
        return False
    if len(lines) < 2 or lines[0].file != lines[1].file:
        return False
    first, second = places[id(one)], places[id(other)]
    same = first.pid is not None and (first.pid, first.host) == (second.pid, second.host)
    return first.is_before(second) or (same and lines[0].line < lines[1].line)


_EXPLAINING = {
    Verdict.UNKNOWN: (Explains.SLOW, Explains.LOAD),
    Verdict.DEGRADED: (Explains.SLOW,),
    Verdict.IMPOSSIBLE: (),
}


def _accounts_for(finding: Finding, outcome: Verdict) -> bool:
    explaining = _EXPLAINING.get(outcome, (Explains.FAILURE,))
    if finding.effect is Verdict.NOT_RUN:
        return outcome is Verdict.NOT_RUN
    return finding.effect is not Verdict.PASS or finding.explains in explaining


def _unexplained(outcome: Verdict, judged: Sequence[Judged]) -> list[Finding]:
    off = [j for j in judged if j.verdict is outcome and j.reading.evidence]
    lines = [*dict.fromkeys(j.reading.evidence for j in off)][-3:]
    if outcome is Verdict.IMPOSSIBLE and off:
        top = max(off, key=lambda j: j.reading.value / (j.limit or 1.0))
        summary = f"{_value(top)}, the limit is {top.limit:.4g}"
        return [finding(summary, top.reading, id_="above-limit")]
    if outcome is Verdict.FAILED and off:
        return [finding(f"{_value(off[-1])} is not a rate", *lines, id_="invalid-reading")]
    if outcome is Verdict.DEGRADED:
        sure = not all(j.expectation and j.expectation.outside for j in off) if off else True
        why, last_first = "the output does not show why", reversed(lines)
        return [finding(why, *last_first, id_="below-band-unexplained", certain=sure)]
    return []


def _value(judged: Judged) -> str:
    unit = "us" if judged.reading.kind == "latency_us" else "GB/s"
    return f"{judged.reading.value:.4g} {unit} at {format_bytes(judged.reading.nbytes)}"
