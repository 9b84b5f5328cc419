# SPDX-License-Identifier: MIT
"""Causes that UCX, Open MPI, MPICH and the launcher show."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.explain.model import Confidence
from busbar.explain.rules import Context, Explains, Finding, Rule
from busbar.judge.expectation import engine_band
from busbar.output.job_output import Occurrence
from busbar.parse.ucx_log import Endpoint
from busbar.verdict import Verdict

_SHARED_MEMORY = frozenset({"sysv", "posix", "cma", "xpmem", "knem", "mm", "self"})
_GPU_PEER = frozenset({"cuda_ipc", "rocm_ipc", "ze_ipc"})
_FAST_NETWORK = frozenset(
    {"rc_verbs", "rc_mlx5", "dc_mlx5", "ud_verbs", "ud_mlx5", "srd", "gga_mlx5", "rc", "dc", "ud"}
)
_TCP = frozenset({"tcp"})
_COLLECTIVE_FRAMES = ("ompi_coll_", "ompi_datatype_sndrcv", "ompi_op_", "mca_coll_")
_POINT_TO_POINT_FRAMES = ("mca_pml_ob1_", "mca_btl_")
_UNLIMITED = ("inf", "infinity")


def not_selected(context: Context) -> Iterator[Finding]:
    """ob1 or a BTL in the backtrace, or asked for, with GPU buffers."""
    facts = context.facts
    calls = frames(context, _POINT_TO_POINT_FRAMES)
    if calls and not frames(context, _COLLECTIVE_FRAMES) and context.facts.device != "host":
        signal = facts.first("died.signal")
        yield Finding(
            "ucx-not-selected",
            "certain" if context.on_gpu else "likely",
            (*[f.evidence for f in calls[:2]], *([signal.evidence] if signal else [])),
            f"the failing call is in {calls[0]['function']}",
            Explains.FAILURE,
            Verdict.FAILED,
        )
        return
    chosen = next((s for s in facts.seen("mpi.pml-in-use") if s["component"] == "ob1"), None)
    setting = facts.setting("OMPI_MCA_pml")
    requested = setting if setting and setting.value in ("ob1", "^ucx") else None
    if context.on_gpu and (shown := chosen or requested):
        confidence: Confidence = "certain" if chosen else "likely"
        yield Finding("ucx-not-selected", confidence, (shown.evidence,), "pml ob1 is used")


def collective_not_gpu_aware(context: Context) -> Iterator[Finding]:
    """A collective that died in code of Open MPI that reads buffers on the CPU."""
    calls = frames(context, _COLLECTIVE_FRAMES)
    signal = context.facts.first("died.signal")
    if not calls or not signal or context.facts.device == "host":
        return
    yield Finding(
        "mpi-collective-not-gpu-aware",
        "certain" if context.on_gpu else "likely",
        (signal.evidence, *[f.evidence for f in calls[:2]]),
        f"signal {signal['number']} in {calls[0]['function']}",
        Explains.FAILURE,
        Verdict.FAILED,
    )


def frames(context: Context, prefixes: tuple[str, ...]) -> list[Occurrence]:
    """Functions in a backtrace that begin with one of ``prefixes``."""
    return [s for s in context.facts.seen("frame") if s["function"].startswith(prefixes)]


def not_usable(context: Context) -> Iterator[Finding]:
    """Open MPI's pml ucx could not be opened."""
    facts = context.facts
    told = [s for s in facts.seen("mpi.no-components") if s["framework"] in ("pml", "")]
    refused = [s for s in facts.seen("mpi.pml-refused") if s["component"] == "ucx"]
    told += refused
    for seen in told[:1]:
        yield Finding(
            "ucx-not-usable",
            "certain",
            (seen.evidence,),
            "no component of the pml framework could be opened",
            Explains.FAILURE,
            Verdict.FAILED,
        )
        # Open MPI takes UCX only for transports of its own list (pml_ucx_tls): InfiniBand, CUDA or
        # ROCm. Where the node has no InfiniBand, that UCX is refused means that it shows no GPU
        # transport.
        if facts.device == "host":
            continue
        tls = facts.setting("UCX_TLS")
        version = facts.first("ucx.version") or facts.first("ucx.api-mismatch")
        evidence = (
            seen.evidence,
            *([tls.evidence] if tls else []),
            *([version.evidence] if version else []),
        )
        yield Finding(
            "ucx-no-gpu-transport",
            "likely",
            evidence,
            "UCX offers none of the transports that Open MPI takes it for"
            + (f"; UCX_TLS is {tls.value}" if tls else ""),
            Explains.FAILURE,
        )


def no_gpu_transport(context: Context) -> Iterator[Finding]:
    """GPU buffers, and endpoints to other ranks of the node without CUDA or ROCm IPC."""
    if not context.on_gpu:
        return
    peers = _peers(context, inside_node=True)
    staged = [(e, s) for e, s in peers if not _GPU_PEER & set(e.lanes)]
    tls = context.facts.setting("UCX_TLS")
    if (
        not context.facts.endpoints
        and tls
        and _hides_peers(tls.value)
        and not _tls_is_tcp(tls.value)
    ):
        told = f"UCX_TLS is {tls.value}"
        yield Finding("ucx-no-gpu-transport", "likely", (tls.evidence,), told)
    if not staged or len(staged) < len(peers):
        return
    endpoint, seen = staged[0]
    yield Finding(
        "ucx-no-gpu-transport",
        "certain",
        (seen.evidence, *([tls.evidence] if tls else [])),
        f"between ranks of the node UCX took {', '.join(endpoint.lanes)}"
        + (f"; UCX_TLS is {tls.value}" if tls else ""),
        effect=Verdict.DEGRADED,
    )


def _hides_peers(tls: str) -> bool:
    """Whether a value of ``UCX_TLS`` leaves out every transport between GPUs."""
    named = set(tls.removeprefix("^").split(","))
    if tls.startswith("^"):
        return bool(named & (_GPU_PEER | {"cuda", "rocm"}))
    return not named & (_GPU_PEER | {"all", "cuda", "rocm", "ze"})


def tcp_fallback(context: Context) -> Iterator[Finding]:
    """Endpoints to other ranks over TCP alone, where shared memory or a fabric is expected."""
    facts = context.facts
    inside = [(e, s) for e, s in _peers(context, inside_node=True) if _only_tcp(e)]
    across = [(e, s) for e, s in _peers(context, inside_node=False) if _only_tcp(e)]
    fabric = context.site.fabric if context.site else None
    tls = facts.setting("UCX_TLS")
    setting = [tls.evidence] if tls else []
    if inside:
        seen = inside[0][1]
        yield Finding(
            "ucx-tcp-fallback",
            "certain",
            (seen.evidence, *setting),
            "ranks of one node talk over TCP" + (f"; UCX_TLS is {tls.value}" if tls else ""),
            effect=Verdict.DEGRADED,
        )
    elif across:
        seen = across[0][1]
        fast = bool(fabric and fabric.provider not in ("tcp", "sockets"))
        yield Finding(
            "ucx-tcp-fallback",
            "certain" if fast else "likely",
            (seen.evidence, *setting),
            "nodes talk over TCP"
            + (f", the site's fabric is {fabric.provider}" if fast and fabric else ""),
            effect=Verdict.DEGRADED if fast else Verdict.PASS,
        )
    elif not facts.endpoints and tls and _tls_is_tcp(tls.value):
        yield Finding("ucx-tcp-fallback", "likely", (tls.evidence,), f"UCX_TLS is {tls.value}")


def _peers(context: Context, *, inside_node: bool) -> list[tuple[Endpoint, Occurrence]]:
    """Endpoints to other ranks; UCX 1.14 does not say whether they are on the node."""
    wanted = "intra-node" if inside_node else "inter-node"
    single = (context.nodes or len(context.facts.hosts) or 1) == 1
    return [
        (endpoint, seen)
        for endpoint, seen in context.facts.endpoints.items()
        if not endpoint.loopback
        and (endpoint.scope == wanted or (not endpoint.scope and single == inside_node))
    ]


def _only_tcp(endpoint: Endpoint) -> bool:
    lanes = set(endpoint.lanes)
    return bool(lanes & _TCP) and not lanes & (_SHARED_MEMORY | _GPU_PEER | _FAST_NETWORK)


def _tls_is_tcp(value: str) -> bool:
    lanes = set(value.split(","))
    return "tcp" in lanes and lanes <= {
        "tcp",
        "self",
        "cuda_copy",
        "rocm_copy",
        "cuda",
        "rocm",
        "gdr_copy",
    }


def forced_eager(context: Context) -> Iterator[Finding]:
    """A rendezvous threshold above what was measured."""
    setting = context.facts.setting("UCX_RNDV_THRESH")
    if not setting:
        return
    largest = max((r.nbytes for r in context.facts.readings), default=0)
    values = [part.rsplit(":", 1)[-1] for part in setting.value.split(",")]
    if any(v.lower() in _UNLIMITED or _size(v) > max(largest // 2, 1 << 20) for v in values):
        yield Finding(
            "ucx-forced-eager",
            "certain",
            (setting.evidence,),
            f"UCX_RNDV_THRESH is {setting.value}",
        )


def _size(text: str) -> int:
    digits = text.strip().lower().removesuffix("b").removesuffix("i")
    factor = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.get(digits[-1:], 1)
    digits = digits.rstrip("kmg")
    return int(digits) * factor if digits.isdigit() else 0


def api_mismatch(context: Context) -> Iterator[Finding]:
    """Libraries of two UCX versions in one process, when the run failed."""
    facts = context.facts
    mixed = facts.first("ucx.mixed")
    if mixed and not facts.reports:
        fatal = mixed["error"].startswith("undefined")
        yield Finding(
            "ucx-api-mismatch",
            "certain" if fatal else "likely",
            (mixed.evidence,),
            f"{mixed['library']}: {mixed['error']}",
            Explains.FAILURE,
            Verdict.FAILED if fatal else Verdict.PASS,
        )
        return
    told = facts.first("ucx.api-mismatch")
    error = facts.first("ucx.error")
    if told and error:
        yield Finding(
            "ucx-api-mismatch",
            "likely",
            (told.evidence, error.evidence),
            f"MPI wants UCX {told['required']}, {told['loaded']} is loaded",
            Explains.FAILURE,
        )


def unreachable(context: Context) -> Iterator[Finding]:
    """UCX found no way to a peer."""
    facts = context.facts
    for seen in (facts.seen("ucx.unreachable") + facts.seen("ucx.no-transport"))[:1]:
        tls = facts.setting("UCX_TLS")
        yield Finding(
            "ucx-not-usable",
            "certain",
            (seen.evidence, *([tls.evidence] if tls else [])),
            seen["text"],
            Explains.FAILURE,
            Verdict.FAILED,
        )


def sdma_cap(context: Context) -> Iterator[Finding]:
    """Readings below the kernel engine's band that are what the copy engine carries at most."""
    if context.engine not in ("kernel", None) or not context.site:
        return
    slow = [j for j in context.judged if j.verdict is Verdict.DEGRADED and j.reading.evidence]
    for judged in slow[-1:]:
        cap = engine_band(context.site, context.facts, judged.reading.nbytes, "sdma")
        if (
            cap
            and cap.limit < (judged.limit or 0.0)
            and cap.low <= judged.reading.value <= cap.limit
        ):
            asked = context.facts.setting("HSA_ENABLE_SDMA")
            yield Finding(
                "sdma-cap",
                "certain" if asked and asked.value == "1" else "likely",
                (judged.reading.evidence, *([asked.evidence] if asked else [])),  # type: ignore[arg-type]
                f"{judged.reading.value:.4g} GB/s is what the copy engine carries"
                f" ({cap.limit:g} GB/s at most), the links carry {judged.limit:g}",
            )


RULES: tuple[Rule, ...] = (
    not_usable,
    unreachable,
    not_selected,
    collective_not_gpu_aware,
    no_gpu_transport,
    tcp_fallback,
    forced_eager,
    sdma_cap,
    api_mismatch,
)
