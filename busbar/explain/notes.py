# SPDX-License-Identifier: MIT
"""Notes: facts about a run that are not faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from busbar.engine.expectation import kernel_limit
from busbar.engine.job_output import MOST_VALUES
from busbar.engine.reading import Note
from busbar.engine.runs import MOST_RUNS
from busbar.explain.catalog import note, note_rules
from busbar.explain.rails import crossings
from busbar.explain.rules import Context, Finding
from busbar.explain.rules_efa import shown
from busbar.explain.rules_machine import is_alone, missing_sizes
from busbar.explain.rules_rccl import mscclpp_refusals
from busbar.verdict import Verdict


def notes(
    context: Context, verdict: Verdict, causes: set[str], findings: Sequence[Finding]
) -> list[Note]:
    """Return the notes on a run that do not repeat one of its causes."""
    made = [each for rule in note_rules() for each in rule(context) if each.id not in causes]
    if verdict.is_problem:
        return made
    named = {each.id for each in made}
    for each in findings:
        if each.id not in named:
            text, details = f"{each.id}: {each.summary}", {"cause": each.id} | each.details
            made.append(
                Note("setting-harmless", text, each.evidence, details)
                if verdict is Verdict.PASS
                else Note("setting-not-judged", text, each.evidence, details)
            )
    return made


@note("ucx-api-mismatch")
def _api_mismatch(context: Context) -> Iterator[Note]:
    facts = context.facts
    if mismatch := facts.first("ucx.api-mismatch"):
        yield Note(
            "ucx-api-mismatch",
            f"MPI asks for UCX {mismatch['required']}, {mismatch['loaded']} is loaded from"
            f" {mismatch['path']}",
            (mismatch.evidence,),
        )
    library, headers = facts.first("ucx.info-library"), facts.first("ucx.info-headers")
    if library and headers and library["version"] != headers["version"]:
        yield Note(
            "ucx-api-mismatch",
            f"ucx_info was built with {headers['version']} and runs with {library['version']}",
            (library.evidence, headers.evidence),
        )


@note("readings-dropped")
def _dropped(context: Context) -> Iterator[Note]:
    if line := context.facts.dropped_from:
        kept = len(context.facts.readings)
        yield Note("readings-dropped", f"only the first {kept} readings were judged", (line,))


@note("repeats-dropped")
def _not_kept(context: Context) -> Iterator[Note]:
    if counts := context.facts.not_kept:
        listed = ", ".join(f"{count} {what}" for what, count in counts.items())
        yield Note("repeats-dropped", f"left out after the first {MOST_VALUES}: at least {listed}")


@note("runs-dropped")
def _runs(context: Context) -> Iterator[Note]:
    if line := context.facts.runs_dropped_from:
        yield Note(
            "runs-dropped", f"only the first {MOST_RUNS} runs of the file were read", (line,)
        )


@note("input-damaged")
def _damaged(context: Context) -> Iterator[Note]:
    for file, reason in context.facts.damage.items():
        yield Note("input-damaged", f"{file} was read as far as it goes: {reason}")


@note("sdma-cap")
def _sdma(context: Context) -> Iterator[Note]:
    if context.run.engine != "sdma" or not context.site:
        return
    for judged in context.judged:
        links = kernel_limit(context.run, judged.reading.nbytes)
        if links and judged.limit and links > judged.limit and judged.reading.evidence:
            yield Note(
                "sdma-cap",
                f"the copy engine carries at most {judged.limit:g} GB/s, the links {links:g}",
                (judged.reading.evidence,),
            )
            return


@note("no-run")
def _no_run(context: Context) -> Iterator[Note]:
    if not context.facts.tool and context.facts.reports:
        for name, evidence in context.facts.reports.items():
            yield Note(
                "no-run", f"this is the output of {name}; busbar site detect reads it", (evidence,)
            )


@note("end-not-shown")
def _end(context: Context) -> Iterator[Note]:
    facts = context.facts
    missing = missing_sizes(context)
    if missing or (facts.tool == "nccl-tests" and facts.readings and not facts.finished):
        last = facts.readings[-1].evidence
        yield Note(
            "end-not-shown",
            missing or "the closing lines of the table are not in the input",
            (last,) if last else (),
        )


@note("one-rank")
def _alone(context: Context) -> Iterator[Note]:
    alone = is_alone(context.facts, context.ranks)
    if alone and (last := context.facts.readings[-1].evidence):
        yield Note(
            "one-rank",
            "one rank has no other to send to, so its bus bandwidth is 0 by definition; measure"
            " with more GPUs: -g N, or N ranks of a build with MPI",
            (last,),
        )


@note("ring-neighbours")
def _rails(context: Context) -> Iterator[Note]:
    crossed = crossings(context.facts, context.node)
    if not crossed or any(c.same_rail is False for c in crossed):
        return
    on_one_rail = [c for c in crossed if c.same_rail]
    yield Note(
        "ring-neighbours",
        f"{len(crossed)} pairs cross nodes"
        + (
            ", all on one rail each"
            if len(on_one_rail) == len(crossed)
            else "; their NICs are not shown"
        ),
        tuple(dict.fromkeys(c.evidence for c in crossed))[:3],
        {"pairs": [c.pair for c in crossed], "nics": sorted({c.nics for c in on_one_rail})},
    )


@note("not-shown")
def _efa(context: Context) -> Iterator[Note]:
    facts = context.facts
    if not any(kind.startswith("ofi.") for kind in facts.messages):
        return
    lines = shown(context)
    missing = [name for name, line in lines.items() if line is None]
    if missing:
        yield Note(
            "not-shown",
            f"the input does not show: {', '.join(missing)}",
            tuple(line for line in lines.values() if line)[:1],
            {"missing": missing},
        )


@note("rccl-msccl-off")
def _mscclpp(context: Context) -> Iterator[Note]:
    setting = context.facts.setting("RCCL_MSCCLPP_ENABLE")
    if setting and setting.value != "0":
        for reason, evidence in mscclpp_refusals(context):
            yield Note(
                "rccl-msccl-off", reason, (setting.evidence, *([evidence] if evidence else []))
            )


@note("error-shown")
def _errors(context: Context) -> Iterator[Note]:
    for kind in ("ucx.error", "nccl.warn", "ofi.warning", "slurm.error"):
        if seen := context.facts.first(kind):
            yield Note("error-shown", seen["text"], (seen.evidence,))
