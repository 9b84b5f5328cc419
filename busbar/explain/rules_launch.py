# SPDX-License-Identifier: MIT
"""Causes in how ranks were started and placed, and what MPICH says at its start."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.explain.rules import Context, Explains, Finding, Rule
from busbar.explain.rules_mpi import frames
from busbar.judge.expectation import kernel_limit
from busbar.judge.verdicts import Judged
from busbar.verdict import Verdict


def wrong_gpu(context: Context) -> Iterator[Finding]:
    """A rank that says it is on another GPU than its check expects."""
    lines = [
        (str(event["text"]), evidence)
        for event, evidence in context.facts.events
        if event.get("event") == "error" and ", expected " in str(event.get("text"))
    ]
    if lines:
        evidence = tuple(e for _, e in lines[:3])
        yield Finding(
            "wrong-gpu", "certain", evidence, lines[0][0], Explains.FAILURE, Verdict.FAILED
        )


def gtl_missing(context: Context) -> Iterator[Finding]:
    """Cray MPICH's complaint at MPI_Init, or the loader's."""
    for kind in ("mpich.gtl", "mpich.gtl-missing"):
        if seen := context.facts.first(kind):
            yield Finding(
                "cray-gtl-missing",
                "certain",
                (seen.evidence,),
                seen["text"],
                Explains.FAILURE,
                Verdict.FAILED,
            )
            return


def mpich_gpu_off(context: Context) -> Iterator[Finding]:
    """MPICH with GPU buffers and its support off."""
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
            (shown, *([crashed.evidence] if crashed else [])),
            "GPU support of MPICH is off",
            Explains.FAILURE,
            Verdict.FAILED if crashed else Verdict.PASS,
        )
    elif crashed and context.on_gpu:
        yield Finding(
            "mpich-gpu-support-off",
            "likely",
            (crashed.evidence,),
            "MPICH touched a GPU buffer on the CPU",
            Explains.FAILURE,
            Verdict.FAILED,
        )


def no_gpu_driver(context: Context) -> Iterator[Finding]:
    """A GPU program without a driver: in a container that was started without it, or on a node."""
    seen = context.facts.seen("gpu.driver")
    if seen and not context.facts.readings:
        yield Finding(
            "gpu-driver-missing",
            "certain",
            tuple(s.evidence for s in seen[:3]),
            seen[0]["text"],
            Explains.FAILURE,
            Verdict.FAILED,
        )


def singletons(context: Context) -> Iterator[Finding]:
    """Several programs of one rank where one of several was asked for."""
    facts = context.facts
    bare = facts.tool.startswith("osu") and facts.first("osu.ranks") is not None
    several = len(facts.launches) > 1
    lone = (
        several and facts.tool == "nccl-tests" and {d.rank for d in facts.devices.values()} == {0}
    )
    repeated = several and not facts.readings and facts.tool.startswith("osu_")
    if not (facts.single_starts or bare or lone or repeated):
        return
    asked = next((c.ranks for c, _ in facts.commands if c.ranks), None)
    if lone and len(facts.devices) < 2:
        return
    certain = facts.single_starts > 1 or lone or bool(facts.single_starts and asked != 1)
    yield Finding(
        "singletons",
        "certain" if certain else "likely",
        tuple(facts.launches[:3]),
        f"{max(len(facts.launches), facts.single_starts)} programs of one rank started",
        Explains.FAILURE,
        Verdict.FAILED,
        {"programs": max(len(facts.launches), facts.single_starts)},
    )


def pmix_mismatch(context: Context) -> Iterator[Finding]:
    """The messages of a PMI that does not fit."""
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
"""Times the limit of the links: what copies inside one GPU exceed from 8 MiB on, measured 2.1 to
4.4 on an H200 and more where links are slower. A reading just above the limit is a wrong one."""


def _links(context: Context, judged: Judged) -> float:
    """GB/s of the links of a pair, whatever engine the reading was judged for."""
    limit = judged.limit or 0.0
    if not context.site or context.engine != "sdma":
        return limit
    return max(limit, kernel_limit(context.site, context.facts, judged.reading.nbytes) or 0.0)


def same_gpu(context: Context) -> Iterator[Finding]:
    """Two ranks that name the same GPU, or a rate that only one GPU's memory has."""
    facts = context.facts
    placed: dict[tuple[str, str], int] = {}
    for event, evidence in facts.events:
        if event.get("event") != "rank" or not event.get("device"):
            continue
        where = (str(event.get("host")), str(event["device"]))
        rank = event.get("rank")
        if not isinstance(rank, int):
            continue
        if where in placed and placed[where] != rank:
            yield Finding(
                "same-gpu",
                "certain",
                (evidence,),
                f"ranks {placed[where]} and {rank} are both on {where[1]} of {where[0]}",
                Explains.FAILURE,
                Verdict.FAILED,
            )
            return
        placed[where] = rank
    told = next((e for e in facts.events if "share GPU" in str(e[0].get("text", ""))), None)
    if told:
        yield Finding(
            "same-gpu",
            "certain",
            (told[1],),
            str(told[0]["text"]),
            Explains.FAILURE,
            Verdict.FAILED,
        )
        return
    fast = [
        j
        for j in context.judged
        if j.verdict is Verdict.IMPOSSIBLE
        and j.reading.evidence
        and j.reading.value > _MEMORY_RATE * _links(context, j)
    ]
    if fast and context.on_gpu and facts.readings[0].kind == "bw":
        top = max(fast, key=lambda j: j.reading.value)
        yield Finding(
            "same-gpu",
            "likely",
            (top.reading.evidence,),  # type: ignore[arg-type]
            f"{top.reading.value:.4g} GB/s is more than links carry ({top.limit:g}"
            f" GB/s):"
            " the rate of a copy inside one GPU",
            Explains.IMPOSSIBLE,
            Verdict.IMPOSSIBLE,
        )


RULES: tuple[Rule, ...] = (
    same_gpu,
    wrong_gpu,
    no_gpu_driver,
    singletons,
    pmix_mismatch,
    gtl_missing,
    mpich_gpu_off,
)
