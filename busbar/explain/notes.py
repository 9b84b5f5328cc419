# SPDX-License-Identifier: MIT
"""Notes: facts about a run that are not faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from busbar.engine.expectation import kernel_limit
from busbar.engine.job_output import MOST_VALUES
from busbar.engine.reading import Note
from busbar.engine.runs import MOST_RUNS
from busbar.expect.measured import COPY
from busbar.explain.catalog import note, note_rules
from busbar.explain.rails import crossings
from busbar.explain.rules import Context, Finding, lines_of
from busbar.explain.rules_end import is_alone, missing_sizes, of_another_program, unclear
from busbar.parse.events import Check, Rank
from busbar.parse.tables import beside
from busbar.units import format_bytes
from busbar.verdict import Verdict

_WHEEL = "/libucx/lib/"
"""Where the wheel of UCX has its libraries."""


def notes(
    context: Context, verdict: Verdict, causes: set[str], findings: Sequence[Finding]
) -> list[Note]:
    """Return the notes on a run that do not repeat one of its causes."""
    made = [each for rule in note_rules() for each in rule(context) if each.id not in causes]
    if verdict.is_problem:
        is_own = context.is_of_a_rank
        made = [n for n in made if n.id != "after-results"]
        return [n for n in made if n.id != "other-program" or not is_own(*n.evidence)]
    named = {each.id for each in made}
    for f in findings:
        if f.id not in named:
            told = f"{f.id}: {f.summary}", f.evidence, {"cause": f.id} | f.details
            passed = verdict is Verdict.PASS
            made.append(
                Note("setting-harmless", *told) if passed else Note("setting-not-judged", *told)
            )
    return made


@note("band-of-copy")
def _band_of_copy(context: Context) -> Iterator[Note]:
    bands = [each.expectation for each in context.judged if each.expectation]
    if any(COPY in band.sources for band in bands):
        summary = "limit and band are from memory copies between the same processes in this run"
        yield Note("band-of-copy", summary)


@note("ucx-api-mismatch")
def _api_mismatch(context: Context) -> Iterator[Note]:
    facts = context.facts
    if mismatch := facts.first("ucx.api-mismatch"):
        does = "these readings count; if jobs hang or crash, load the UCX that MPI was built for,"
        does += f" not {mismatch['path']}"
        if _WHEEL in mismatch["path"]:
            does = "these wheels belong together; set OMPI_MCA_osc=rdma,sm for your own programs"
            does += " that use MPI_Get with UCX 1.14"
        pair = f"MPI was built for UCX {mismatch['required']} and runs with {mismatch['loaded']}"
        yield Note("ucx-api-mismatch", f"{pair}; {does}", (mismatch.evidence,))
    library, headers = facts.first("ucx.info-library"), facts.first("ucx.info-headers")
    if library and headers and library["version"] != headers["version"]:
        summary = f"ucx_info was built with {headers['version']} and runs with"
        lines = lines_of(library, headers)
        yield Note("ucx-api-mismatch", f"{summary} {library['version']}", lines)


@note("job-cancelled")
def _cancelled(context: Context) -> Iterator[Note]:
    ended = context.facts.first("died.cancelled")
    if ended and context.facts.finished:
        yield Note("job-cancelled", "after the program had measured all", (ended.evidence,))


@note("above-band")
def _beyond(context: Context) -> Iterator[Note]:
    if beyond := [each for each in context.judged if each.is_beyond]:
        first = max(beyond, key=lambda each: each.reading.nbytes).described
        yield Note("above-band", f"{len(beyond)} of {len(context.judged)} readings: {first}")


@note("outside-known-range")
def _outside(context: Context) -> Iterator[Note]:
    judged = context.judged
    if guessed := [each for each in judged if each.expectation and each.expectation.outside]:
        least = min(guessed, key=lambda each: each.share)
        summary = f"no such run has been measured, so the model extrapolates: {least.described}"
        lines = (least.reading.evidence,) if least.reading.evidence else ()
        yield Note("outside-known-range", summary, lines)


@note("readings-dropped", "repeats-dropped", "runs-dropped", "input-damaged")
def _not_read(context: Context) -> Iterator[Note]:
    facts = context.facts
    if line := facts.dropped_from:
        summary = f"only the first {len(facts.readings)} readings were judged"
        yield Note("readings-dropped", summary, (line,))
    if counts := facts.not_kept:
        listed = ", ".join(f"{count} {what}" for what, count in counts.items())
        yield Note("repeats-dropped", f"left out after the first {MOST_VALUES}: at least {listed}")
    if line := facts.runs_dropped_from:
        summary = f"only the first {MOST_RUNS} runs of the file were read"
        yield Note("runs-dropped", summary, (line,))
    for file, reason in facts.damage.items():
        yield Note("input-damaged", f"{file} was read up to the damage: {reason}")


@note("preloaded")
def _preloaded(context: Context) -> Iterator[Note]:
    for rank, line in [(r, at) for r, at in context.facts.events_of(Rank) if r.preloaded][:1]:
        yield Note("preloaded", f"rank {rank.rank} preloads {rank.preloaded}", (line,))


@note("late-gets")
def _late_gets(context: Context) -> Iterator[Note]:
    checks = context.facts.events_of(Check)
    for check, line in [(c, at) for c, at in checks if c.late and not c.wrong][:1]:
        size = format_bytes(check.nbytes)
        summary = f"{check.late} bytes of MPI_Get at {size} arrived after the closing fence"
        yield Note("late-gets", f"{summary}: a fault of UCX before 1.16", (line,))


@note("sdma-cap")
def _sdma(context: Context) -> Note | None:
    if context.run.engine != "sdma" or not context.site:
        return None
    for judged in context.judged:
        links = kernel_limit(context.run, judged.reading.nbytes)
        if links and judged.limit and links > judged.limit and judged.reading.evidence:
            summary = f"the copy engine carries at most {judged.limit:g} GB/s, the links {links:g}"
            return Note("sdma-cap", summary, (judged.reading.evidence,))
    return None


@note("no-run")
def _no_run(context: Context) -> Iterator[Note]:
    for name, evidence in context.facts.reports.items() if not context.facts.tool else ():
        summary = f"this is the output of {name}; busbar site detect reads it"
        yield Note("no-run", summary, (evidence,))


@note("end-not-shown")
def _end(context: Context) -> Iterator[Note]:
    facts = context.facts
    missing = missing_sizes(context)
    if missing or (facts.tool == "nccl-tests" and facts.readings and not facts.finished):
        summary = missing or "the closing lines of the table are not in the input"
        yield Note("end-not-shown", summary, lines_of(facts.readings[-1]))


@note("other-program")
def _other_program(context: Context) -> Iterator[Note]:
    if context.facts.readings and (line := of_another_program(context)):
        summary = "a line says that a program failed; the input does not show if it is the one"
        yield Note("other-program", f"{summary} that measured", (line,))


@note("after-results")
def _after_results(context: Context) -> Iterator[Note]:
    if line := unclear(context):
        yield Note("after-results", "a line after the results may say what failed", (line,))


@note("one-rank")
def _alone(context: Context) -> Iterator[Note]:
    if is_alone(context.facts, context.ranks):
        does = "one rank has no other to send to, so its bus bandwidth is 0 by definition; measure"
        does += " with more GPUs: -g N, or N ranks of a build with MPI"
        yield Note("one-rank", does, lines_of(context.facts.readings[-1]))


@note("ring-neighbours")
def _neighbours(context: Context) -> Iterator[Note]:
    crossed = crossings(context.facts, context.node)
    if crossed and all(c.same_rail for c in crossed):
        yield Note(
            "ring-neighbours",
            f"{len(crossed)} pairs cross nodes, all on one rail each",
            tuple(dict.fromkeys(c.evidence for c in crossed))[:3],
            {"pairs": [c.pair for c in crossed], "nics": sorted({c.nics for c in crossed})},
        )


@note("not-shown")
def _efa(context: Context) -> Iterator[Note]:
    facts = context.facts
    if not any(kind.startswith("ofi.") for kind in facts.messages):
        return
    shown = {
        name: next((s.evidence for kind in kinds if (s := facts.first(kind))), None)
        for name, kinds in beside(__file__).items()
    }
    network = next((w for w in facts.transports if w.endswith("/GDRDMA")), None)
    if network:
        shown["GPUDirect"] = facts.transport_lines[network]
    missing = [name for name, line in shown.items() if line is None]
    if missing:
        summary = f"the input does not show: {', '.join(missing)}"
        lines = tuple(line for line in shown.values() if line)[:1]
        yield Note("not-shown", summary, lines, {"missing": missing})


@note("error-shown")
def _errors(context: Context) -> Iterator[Note]:
    kinds = ("ucx.error", "nccl.warn", "ofi.warning", "slurm.error")
    # The same line can be a warning of NCCL and of its plugin.
    found = {seen.evidence: seen["text"] for seen in map(context.facts.first, kinds) if seen}
    for line, text in found.items():
        yield Note("error-shown", text, (line,))


@note("tcp-only")
def _tcp_only(context: Context) -> Iterator[Note]:
    none, taken = context.facts.first("nccl.ib-none"), context.facts.first("nccl.socket")
    if none and taken and not (context.facts.tool and context.nodes == 1):
        summary = f"NCCL runs over TCP ({taken['interface']}): it found no RDMA device"
        yield Note("tcp-only", summary, lines_of(none, taken))


@note("node-busy")
def _busy_beside(context: Context) -> Iterator[Note]:
    """What others did is worth knowing of a slow reading, and of one that nothing judges."""
    open_ = any(each.is_slow or each.verdict is Verdict.UNJUDGED for each in context.judged)
    if open_ and not context.excused:
        for load in context.loads:
            yield Note("node-busy", f"{load.cause}: {load.summary}", (load.evidence,))


@note("nccl-version-mismatch")
def _headers(context: Context) -> Iterator[Note]:
    """Newer or older headers make no run slow; what they break fails to start."""
    for message in context.facts.seen("tests.nccl"):
        headers, library = message["headers"], message["library"]
        if headers and library and headers != library:
            summary = f"built with {headers}, running with {library}"
            yield Note("nccl-version-mismatch", summary, (message.evidence,))
