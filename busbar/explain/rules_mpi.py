# SPDX-License-Identifier: MIT
"""Causes in MPI and UCX, and in the start and placement of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from busbar.engine.expectation import engine_band, kernel_limit
from busbar.engine.job_output import Occurrence
from busbar.engine.reading import Reading
from busbar.engine.verdicts import Judged
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Finding, degraded, failure, finding, words_of
from busbar.parse.events import Rank, Start
from busbar.parse.ucx_log import Endpoint
from busbar.units import parse_bytes
from busbar.verdict import Verdict

_SHARED_MEMORY = frozenset({"sysv", "posix", "cma", "xpmem", "knem", "mm", "self"})
_GPU_PEER = frozenset({"cuda_ipc", "rocm_ipc", "ze_ipc"})
_FAST_NETWORK = frozenset(
    {"rc_verbs", "rc_mlx5", "dc_mlx5", "ud_verbs", "ud_mlx5", "srd", "gga_mlx5", "rc", "dc", "ud"}
)
_TCP_AND_COPIES = frozenset({"tcp", "self", "cuda_copy", "rocm_copy", "cuda", "rocm", "gdr_copy"})
_COLLECTIVE_FRAMES = ("ompi_coll_", "ompi_datatype_sndrcv", "ompi_op_", "mca_coll_")
_POINT_TO_POINT_FRAMES = ("mca_pml_ob1_", "mca_btl_")
_GPU_AWARE_FRAMES = ("mca_btl_smcuda",)
"""Of a layer for GPU buffers; it also carries those of the host."""
_UNLIMITED = ("inf", "infinity")


def frames(context: Context, prefixes: tuple[str, ...]) -> list[Occurrence]:
    """Return the functions in a backtrace that begin with one of ``prefixes``."""
    return [s for s in context.facts.seen("frame") if s["function"].startswith(prefixes)]


# ---- Open MPI
@cause("ucx-not-selected", fatal=True)
def not_selected(context: Context) -> Finding | None:
    """GPU buffers, and ob1 or a BTL is in the backtrace or requested."""
    facts = context.facts
    calls = frames(context, _POINT_TO_POINT_FRAMES)
    other = frames(context, _COLLECTIVE_FRAMES)
    other += [] if context.on_gpu else frames(context, _GPU_AWARE_FRAMES)
    if calls and not other and facts.device != "host":
        summary = f"the failing call is in {calls[0]['function']}"
        signal = facts.first("died.signal")
        return failure(summary, *calls[:2], signal, certain=context.on_gpu)
    chosen = next((s for s in facts.seen("mpi.pml-in-use") if s["component"] == "ob1"), None)
    setting = facts.setting("OMPI_MCA_pml")
    requested = setting if setting and setting.value in ("ob1", "^ucx") else None
    if context.on_gpu and (chosen or requested):
        return finding("pml ob1 is used", chosen or requested, certain=bool(chosen))
    return None


@cause("mpi-collective-not-gpu-aware", fatal=True)
def collective_not_gpu_aware(context: Context) -> Finding | None:
    """A collective crashed in code of Open MPI that reads buffers on the CPU."""
    calls = frames(context, _COLLECTIVE_FRAMES)
    signal = context.facts.first("died.signal")
    if not calls or not signal or context.facts.device == "host":
        return None
    summary = f"signal {signal['number']} in {calls[0]['function']}"
    return failure(summary, signal, *calls[:2], certain=context.on_gpu)


@cause("ucx-not-usable", fatal=True)
def not_usable(context: Context) -> Iterator[Finding]:
    """Open MPI could not open pml ucx."""
    facts = context.facts
    refused = [s for s in facts.seen("mpi.no-components") if s["framework"] == "pml"]
    refused += [s for s in facts.seen("mpi.pml-refused") if s["component"] == "ucx"]
    for seen in refused[:1]:
        yield failure("no component of the pml framework could be opened", seen)
        # Open MPI uses UCX only for transports of its own list (pml_ucx_tls): InfiniBand, CUDA or
        # ROCm. On a node without InfiniBand, refusing UCX means that UCX has no GPU transport.
        if facts.device != "host":
            tls = facts.setting("UCX_TLS")
            yield failure(
                f"UCX offers none of the transports for which Open MPI uses it{words_of(tls)}",
                *(seen, tls, facts.first("ucx.version") or facts.first("ucx.api-mismatch")),
                certain=False,
                effect=Verdict.PASS,
                id_="ucx-no-gpu-transport",
            )


# ---- UCX
@cause("ucx-no-gpu-transport", fatal=True)
def no_gpu_transport(context: Context) -> Iterator[Finding]:
    """GPU buffers, and the endpoints inside the node have no CUDA or ROCm IPC."""
    facts = context.facts
    if not context.on_gpu:
        return
    peers = _peers(context, inside_node=True)
    staged = [(e, s) for e, s in peers if not _GPU_PEER & set(e.lanes)]
    tls = facts.setting("UCX_TLS")
    if not facts.endpoints and tls and _hides_peers(tls.value) and not _tls_is_tcp(tls.value):
        summary = f"UCX_TLS is {tls.value}"
        crash = facts.first("died.signal") or facts.first("died.backtrace")
        if crash and not facts.readings:
            yield failure(summary, tls, crash, certain=False)
        yield finding(summary, tls, certain=False)
    if staged and len(staged) == len(peers):
        endpoint, seen = staged[0]
        lanes = ", ".join(endpoint.lanes)
        yield degraded(f"between ranks of the node UCX uses {lanes}{words_of(tls)}", seen, tls)


def _hides_peers(tls: str) -> bool:
    """Return whether a value of ``UCX_TLS`` excludes every transport between GPUs."""
    named = set(tls.removeprefix("^").split(","))
    if tls.startswith("^"):
        return bool(named & (_GPU_PEER | {"cuda", "rocm"}))
    return not named & (_GPU_PEER | {"all", "cuda", "rocm", "ze"})


@cause("ucx-tcp-fallback")
def tcp_fallback(context: Context) -> Finding | None:
    """Endpoints use only TCP instead of shared memory or a fabric."""
    facts = context.facts
    inside = [s for e, s in _peers(context, inside_node=True) if _only_tcp(e)]
    across = [s for e, s in _peers(context, inside_node=False) if _only_tcp(e)]
    fabric = context.site.fabric if context.site else None
    tls = facts.setting("UCX_TLS")
    if inside:
        several = (context.ranks or 1) > 1 or facts.readings
        known = several or any(each.scope for each in facts.endpoints)
        name = degraded if known else finding  # a program of its own can have its peer elsewhere
        return name(f"ranks on one node communicate over TCP{words_of(tls)}", inside[0], tls)
    if fabric and fabric.provider in ("tcp", "sockets"):
        return None
    if across and fabric:
        summary = f"nodes communicate over TCP, but the site's fabric is {fabric.provider}"
        return degraded(summary, across[0], tls)
    if across:
        return finding("nodes communicate over TCP", across[0], tls, certain=False)
    if not facts.endpoints and tls and _tls_is_tcp(tls.value):
        return finding(f"UCX_TLS is {tls.value}", tls, certain=False)
    return None


def _peers(context: Context, *, inside_node: bool) -> list[tuple[Endpoint, Occurrence]]:
    """Return endpoints to other ranks; UCX 1.14 does not show whether they are on the node."""
    scope = "intra-node" if inside_node else "inter-node"
    single = (context.nodes or len(context.facts.hosts) or 1) == 1
    return [
        (endpoint, seen)
        for endpoint, seen in context.facts.endpoints.items()
        if not endpoint.loopback
        and (endpoint.scope == scope or (not endpoint.scope and single == inside_node))
    ]


def _only_tcp(endpoint: Endpoint) -> bool:
    lanes = set(endpoint.lanes)
    return "tcp" in lanes and not lanes & (_SHARED_MEMORY | _GPU_PEER | _FAST_NETWORK)


def _tls_is_tcp(value: str) -> bool:
    lanes = set(value.split(","))
    return "tcp" in lanes and lanes <= _TCP_AND_COPIES


@cause("ucx-forced-eager")
def forced_eager(context: Context) -> Finding | None:
    """The rendezvous threshold is above the measured sizes."""
    setting = context.facts.setting("UCX_RNDV_THRESH")
    if not setting:
        return None
    largest = max((r.nbytes for r in context.facts.readings), default=0)
    values = [part.rsplit(":", 1)[-1] for part in setting.value.split(",")]
    if any(v.lower() in _UNLIMITED or _size(v) > max(largest // 2, 1 << 20) for v in values):
        return finding(f"UCX_RNDV_THRESH is {setting.value}", setting)
    return None


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError:  # not a size
        return 0


@cause("ucx-api-mismatch", fatal=True)
def api_mismatch(context: Context) -> Finding | None:
    """A process has libraries of two UCX versions, and the run failed."""
    facts = context.facts
    mixed, error = facts.first("ucx.mixed"), facts.first("ucx.error")
    if mixed and not facts.reports:
        fatal = mixed["error"].startswith("undefined")
        effect = Verdict.FAILED if fatal else Verdict.PASS
        summary = f"{mixed['library']}: {mixed['error']}"
        return failure(summary, mixed, certain=fatal, effect=effect)
    mismatch = facts.first("ucx.api-mismatch")
    if mismatch and error:
        summary = f"MPI needs UCX {mismatch['required']}, {mismatch['loaded']} is loaded"
        return failure(summary, mismatch, error, certain=False, effect=Verdict.PASS)
    return None


@cause("sdma-cap")
def sdma_cap(context: Context) -> Finding | None:
    """Readings below the kernel engine's band are at the copy engine's maximum."""
    if context.run.engine not in ("kernel", None) or not context.site:
        return None
    for judged in [j for j in context.judged if j.is_slow and j.reading.evidence][-1:]:
        cap, value = engine_band(context.run, judged.reading.nbytes, "sdma"), judged.reading.value
        if cap and cap.limit < (judged.limit or 0.0) and cap.low <= value <= cap.limit:
            setting = context.facts.setting("HSA_ENABLE_SDMA")
            return finding(
                f"{value:.4g} GB/s is what the copy engine carries"
                f" ({cap.limit:g} GB/s at most), the links carry {judged.limit:g}",
                *(judged.reading, setting),
                certain=bool(setting and setting.value == "1"),
            )
    return None


# ---- the start and placement of ranks, and MPICH
@cause("wrong-gpu", "nccl-too-few-gpus", "too-few-gpus", fatal=True)
def own_error(context: Context) -> Iterator[Finding]:
    """One of our programs reports that a rank has no GPU, or another than is expected."""
    for code in ("wrong-gpu", "too-few-gpus"):
        if errors := context.errors(code):
            several = len(errors) > 1 and code == "too-few-gpus"
            text = (
                f"{len(errors)} ranks have no GPU of their own" if several else errors[0][0].text
            )
            nccl = context.facts.tool.startswith("torch") and code == "too-few-gpus"
            id_ = f"nccl-{code}" if nccl else code
            yield failure(text, *[line for _, line in errors[:3]], id_=id_)


@cause("mpich-gpu-support-off", fatal=True)
def mpich_gpu_off(context: Context) -> Finding | None:
    """MPICH got GPU buffers with its GPU support off."""
    facts = context.facts
    setting = facts.setting("MPICH_GPU_SUPPORT_ENABLED", "MPIR_CVAR_ENABLE_GPU")
    shown = facts.first("mpich.gpu-off") or (setting if setting and setting.value == "0" else None)
    signal = facts.first("died.signal") if frames(context, ("MPIR_", "MPID")) else None
    crashed = facts.first("mpich.bad-address") or signal
    if facts.device == "host":
        return None
    if shown and (context.on_gpu or crashed):
        effect = Verdict.FAILED if crashed else Verdict.PASS
        return failure("GPU support of MPICH is off", shown, crashed, effect=effect)
    if not shown and crashed and context.on_gpu:
        return failure("MPICH accessed a GPU buffer from the CPU", crashed, certain=False)
    return None


@cause("singletons", fatal=True, hides=["invalid-reading"])
def singletons(context: Context) -> Finding | None:
    """Several programs of one rank ran instead of one program of several ranks."""
    facts = context.facts
    greeted = facts.seen("greeting")
    greeters = sum(1 if each["pid"] else each.count for each in greeted)
    if greeters > 1 and not facts.tool:
        return failure(f"{greeters} programs report that they run alone", *greeted[:3])
    several, nccl = len(facts.launches) > 1, facts.tool == "nccl-tests"
    lone = several and nccl and {d.rank for d in facts.devices.values()} == {0}
    # Two programs print their headers before either has a row.
    headers = several and nccl and not facts.first("tests.failure")
    repeated = headers or (several and not facts.readings and facts.tool.startswith("osu_"))
    bare = facts.tool.startswith("osu") and facts.first("osu.ranks") is not None
    if not (facts.single_starts or bare or lone or repeated):
        return None
    if lone and len(facts.devices) < 2:
        return None
    requested = next((c.ranks for c, _ in facts.commands if c.ranks), None)
    certain = (
        facts.single_starts > 1 or lone or headers or bool(facts.single_starts and requested != 1)
    )
    programs = max(len(facts.launches), facts.single_starts)
    summary = f"{programs} separate programs started"
    return failure(summary, *facts.launches[:3], certain=certain, programs=programs)


@cause("pmix-mismatch", fatal=True)
def pmix_mismatch(context: Context) -> Finding | None:
    """Launcher or MPI complain about the PMI."""
    facts = context.facts
    seen = facts.seen("pmix")
    if not seen:
        return None
    failed = bool(facts.exit_status and facts.exit_status.code) or not facts.readings
    failed = failed or any(context.ends(each.evidence) for each in seen)
    effect = Verdict.FAILED if failed else Verdict.PASS
    return failure(seen[0]["text"], *seen[:3], certain=failed, effect=effect)


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
def same_gpu(context: Context) -> Finding | None:
    """Two ranks report the same GPU, or a rate matches the memory of one GPU."""
    facts = context.facts
    placed: dict[tuple[str, str], int] = {}
    shared = any(start.share_devices for start, _ in facts.events_of(Start))
    for event, evidence in () if shared else facts.events_of(Rank):
        if not event.device:
            continue
        where = (event.host, event.device)
        other = placed.setdefault(where, event.rank)
        if other != event.rank:
            summary = f"ranks {other} and {event.rank} are both on {where[1]} of {where[0]}"
            return failure(summary, evidence)
    if errors := context.errors("same-gpu"):
        return failure(errors[0][0].text, errors[0][1])
    fast = [
        j
        for j in context.judged
        if j.verdict is Verdict.IMPOSSIBLE
        and j.reading.evidence
        and j.reading.buffers != "H"  # a copy that no GPU makes
        and math.isfinite(j.reading.value)
        and j.reading.value > _MEMORY_RATE * _links(context, j)
    ]
    if not (fast and context.on_gpu and facts.readings[0].kind == "bw"):
        return None
    top = max(fast, key=lambda j: j.reading.value)
    return inside_one_gpu(top.reading, f"the links carry ({top.limit:g} GB/s)")


def inside_one_gpu(reading: Reading, most: str) -> Finding:
    """Return the finding of a rate that no link carries."""
    summary = f"{reading.value:.4g} GB/s is more than {most}: the rate of a copy inside one GPU"
    return failure(summary, reading, certain=False, effect=Verdict.IMPOSSIBLE, id_="same-gpu")
