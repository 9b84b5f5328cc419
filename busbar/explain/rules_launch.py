# SPDX-License-Identifier: MIT
"""Causes in the start and placement of ranks, and in MPICH's GPU support."""

from __future__ import annotations

import math
from collections.abc import Iterator

from busbar.engine.expectation import kernel_limit
from busbar.engine.verdicts import Judged
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Explains, Finding, failure, lines_of
from busbar.explain.rules_mpi import frames
from busbar.parse.events import Error, Rank, Start
from busbar.parse.messages import pattern
from busbar.verdict import Verdict


@cause("wrong-gpu", fatal=True)
def wrong_gpu(context: Context) -> Iterator[Finding]:
    """A rank reports another GPU than its check expects."""
    errors = [(e, line) for e, line in context.facts.events_of(Error) if e.code == "wrong-gpu"]
    if errors:
        yield failure("wrong-gpu", [line for _, line in errors[:3]], errors[0][0].text)


@cause("mpich-gpu-support-off", fatal=True)
def mpich_gpu_off(context: Context) -> Iterator[Finding]:
    """MPICH got GPU buffers with its GPU support off."""
    facts = context.facts
    off = facts.first("mpich.gpu-off")
    setting = facts.setting("MPICH_GPU_SUPPORT_ENABLED", "MPIR_CVAR_ENABLE_GPU")
    address = facts.first("mpich.bad-address")
    calls = frames(context, ("MPIR_", "MPID"))
    signal = facts.first("died.signal")
    shown = off.evidence if off else setting.evidence if setting and setting.value == "0" else None
    crashed = address or (signal if calls else None)
    if facts.device == "host" or not (shown or crashed):
        return
    if shown and (context.on_gpu or crashed):
        yield Finding(
            "mpich-gpu-support-off",
            "certain",
            (shown, *lines_of(crashed)),
            "GPU support of MPICH is off",
            Explains.FAILURE,
            Verdict.FAILED if crashed else Verdict.PASS,
        )
    elif crashed and context.on_gpu:
        summary = "MPICH touched a GPU buffer on the CPU"
        yield failure("mpich-gpu-support-off", [crashed.evidence], summary, "likely")


@cause(
    "singletons",
    fatal=True,
    hides=["invalid-reading"],
    patterns=[
        pattern(
            "greeting",
            "of 1",
            # Many programs of one rank print "rank 0 of 1" on each line; they greet once.
            r"(?i:\b(?:hello|hi|greetings|I am|I'm|this is)\W.{0,80}"
            r"\b(?:rank|proc(?:ess|essor)?|task|node)\b\D{0,12}0 (?:out )?of 1\b)(?!\d)"
            r"(?:.*\bpid\W{0,3}(?P<pid>\d+))?",
        )
    ],
)
def singletons(context: Context) -> Iterator[Finding]:
    """Several programs of one rank ran instead of one program of several ranks."""
    facts = context.facts
    bare = facts.tool.startswith("osu") and facts.first("osu.ranks") is not None
    several = len(facts.launches) > 1
    lone = (
        several and facts.tool == "nccl-tests" and {d.rank for d in facts.devices.values()} == {0}
    )
    # Two programs print their headers before either has a row.
    headers = several and facts.tool == "nccl-tests" and not facts.first("tests.failure")
    repeated = headers or (several and not facts.readings and facts.tool.startswith("osu_"))
    greeted = facts.seen("greeting")
    programs = sum(1 if each["pid"] else each.count for each in greeted)
    if programs > 1 and not facts.tool:
        summary = f"{programs} programs say that they are alone"
        yield failure("singletons", lines_of(*greeted[:3]), summary)
        return
    if not (facts.single_starts or bare or lone or repeated):
        return
    requested = next((c.ranks for c, _ in facts.commands if c.ranks), None)
    if lone and len(facts.devices) < 2:
        return
    certain = (
        facts.single_starts > 1 or lone or headers or bool(facts.single_starts and requested != 1)
    )
    programs = max(len(facts.launches), facts.single_starts)
    yield Finding(
        "singletons",
        "certain" if certain else "likely",
        tuple(facts.launches[:3]),
        f"{programs} separate programs started",
        Explains.FAILURE,
        Verdict.FAILED,
        {"programs": programs},
    )


@cause("pmix-mismatch", fatal=True)
def pmix_mismatch(context: Context) -> Iterator[Finding]:
    """Launcher or MPI complain about the PMI."""
    facts = context.facts
    seen = facts.seen("pmix")
    if not seen:
        return
    failed = bool(facts.exit_status and facts.exit_status.code) or not facts.readings
    yield Finding(
        "pmix-mismatch",
        "certain" if failed else "likely",
        tuple(s.evidence for s in seen[:3]),
        seen[0]["text"],
        Explains.FAILURE,
        Verdict.FAILED if failed else Verdict.PASS,
    )


_MEMORY_RATE = 1.5
"""From 8 MiB on copies inside one GPU are faster than this multiple of the links' limit: 2.1 to
4.4 on an H200, more if links are slower. A reading just above the limit is a wrong measurement."""


def _links(context: Context, judged: Judged) -> float:
    """Return the GB/s of the links of a pair, for whatever engine the reading was judged."""
    limit = judged.limit or 0.0
    if not context.site or context.run.engine != "sdma":
        return limit
    return max(limit, kernel_limit(context.run, judged.reading.nbytes) or 0.0)


@cause("same-gpu", fatal=True, hides=["above-limit"])
def same_gpu(context: Context) -> Iterator[Finding]:
    """Two ranks report the same GPU, or a rate is that of one GPU's memory."""
    facts = context.facts
    placed: dict[tuple[str, str], int] = {}
    shared = any(start.share_devices for start, _ in facts.events_of(Start))
    for event, evidence in facts.events_of(Rank):
        if shared or not event.device:
            continue
        where, rank = (event.host, event.device), event.rank
        if where in placed and placed[where] != rank:
            summary = f"ranks {placed[where]} and {rank} are both on {where[1]} of {where[0]}"
            yield failure("same-gpu", [evidence], summary)
            return
        placed[where] = rank
    errors = [(e, line) for e, line in facts.events_of(Error) if e.code == "same-gpu"]
    if errors:
        yield failure("same-gpu", [errors[0][1]], errors[0][0].text)
        return
    fast = [
        j
        for j in context.judged
        if j.verdict is Verdict.IMPOSSIBLE
        and j.reading.evidence
        and math.isfinite(j.reading.value)
        and j.reading.value > _MEMORY_RATE * _links(context, j)
    ]
    if fast and context.on_gpu and facts.readings[0].kind == "bw":
        top = max(fast, key=lambda j: j.reading.value)
        yield Finding(
            "same-gpu",
            "likely",
            (top.reading.evidence,),  # type: ignore[arg-type]
            f"{top.reading.value:.4g} GB/s is more than the links carry ({top.limit:g} GB/s):"
            " it is the rate of a copy inside one GPU",
            Explains.IMPOSSIBLE,
            Verdict.IMPOSSIBLE,
        )
