# SPDX-License-Identifier: MIT
"""Causes in UCX and Open MPI."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.expectation import engine_band
from busbar.engine.job_output import Occurrence
from busbar.engine.reading import Confidence
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Explains, Finding, degraded, failure, lines_of
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


@cause("ucx-not-selected", fatal=True)
def not_selected(context: Context) -> Iterator[Finding]:
    """GPU buffers, and ob1 or a BTL is in the backtrace or requested."""
    facts = context.facts
    calls = frames(context, _POINT_TO_POINT_FRAMES)
    other = frames(context, _COLLECTIVE_FRAMES)
    other += [] if context.on_gpu else frames(context, _GPU_AWARE_FRAMES)
    if calls and not other and facts.device != "host":
        signal = facts.first("died.signal")
        evidence = lines_of(*calls[:2], signal)
        summary = f"the failing call is in {calls[0]['function']}"
        yield failure(
            "ucx-not-selected", evidence, summary, "certain" if context.on_gpu else "likely"
        )
        return
    chosen = next((s for s in facts.seen("mpi.pml-in-use") if s["component"] == "ob1"), None)
    setting = facts.setting("OMPI_MCA_pml")
    requested = setting if setting and setting.value in ("ob1", "^ucx") else None
    if context.on_gpu and (shown := chosen or requested):
        confidence: Confidence = "certain" if chosen else "likely"
        yield Finding("ucx-not-selected", confidence, (shown.evidence,), "pml ob1 is used")


@cause("mpi-collective-not-gpu-aware", fatal=True)
def collective_not_gpu_aware(context: Context) -> Iterator[Finding]:
    """A collective crashed in code of Open MPI that reads buffers on the CPU."""
    calls = frames(context, _COLLECTIVE_FRAMES)
    signal = context.facts.first("died.signal")
    if not calls or not signal or context.facts.device == "host":
        return
    yield failure(
        "mpi-collective-not-gpu-aware",
        lines_of(signal, *calls[:2]),
        f"signal {signal['number']} in {calls[0]['function']}",
        "certain" if context.on_gpu else "likely",
    )


def frames(context: Context, prefixes: tuple[str, ...]) -> list[Occurrence]:
    """Return the functions in a backtrace that begin with one of ``prefixes``."""
    return [s for s in context.facts.seen("frame") if s["function"].startswith(prefixes)]


@cause("ucx-not-usable", fatal=True)
def not_usable(context: Context) -> Iterator[Finding]:
    """Open MPI could not open pml ucx."""
    facts = context.facts
    refused = [s for s in facts.seen("mpi.no-components") if s["framework"] == "pml"]
    refused += [s for s in facts.seen("mpi.pml-refused") if s["component"] == "ucx"]
    for seen in refused[:1]:
        summary = "no component of the pml framework could be opened"
        yield failure("ucx-not-usable", [seen.evidence], summary)
        # Open MPI uses UCX only for transports of its own list (pml_ucx_tls): InfiniBand, CUDA or
        # ROCm. On a node without InfiniBand, refusing UCX means that UCX has no GPU transport.
        if facts.device == "host":
            continue
        tls = facts.setting("UCX_TLS")
        version = facts.first("ucx.version") or facts.first("ucx.api-mismatch")
        yield Finding(
            "ucx-no-gpu-transport",
            "likely",
            lines_of(seen, tls, version),
            "UCX offers none of the transports for which Open MPI uses it"
            + (f"; UCX_TLS is {tls.value}" if tls else ""),
            Explains.FAILURE,
        )


@cause("ucx-no-gpu-transport", fatal=True)
def no_gpu_transport(context: Context) -> Iterator[Finding]:
    """GPU buffers, and the endpoints inside the node have no CUDA or ROCm IPC."""
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
        summary = f"UCX_TLS is {tls.value}"
        crash = context.facts.first("died.signal") or context.facts.first("died.backtrace")
        if crash and not context.facts.readings:
            yield failure("ucx-no-gpu-transport", lines_of(tls, crash), summary, "likely")
        yield Finding("ucx-no-gpu-transport", "likely", (tls.evidence,), summary)
    if not staged or len(staged) < len(peers):
        return
    endpoint, seen = staged[0]
    yield degraded(
        "ucx-no-gpu-transport",
        lines_of(seen, tls),
        f"between ranks of the node UCX uses {', '.join(endpoint.lanes)}"
        + (f"; UCX_TLS is {tls.value}" if tls else ""),
    )


def _hides_peers(tls: str) -> bool:
    """Return whether a value of ``UCX_TLS`` excludes every transport between GPUs."""
    named = set(tls.removeprefix("^").split(","))
    if tls.startswith("^"):
        return bool(named & (_GPU_PEER | {"cuda", "rocm"}))
    return not named & (_GPU_PEER | {"all", "cuda", "rocm", "ze"})


@cause("ucx-tcp-fallback")
def tcp_fallback(context: Context) -> Iterator[Finding]:
    """Endpoints use only TCP instead of shared memory or a fabric."""
    facts = context.facts
    inside = [(e, s) for e, s in _peers(context, inside_node=True) if _only_tcp(e)]
    across = [(e, s) for e, s in _peers(context, inside_node=False) if _only_tcp(e)]
    fabric = context.site.fabric if context.site else None
    tls = facts.setting("UCX_TLS")
    if inside:
        seen = inside[0][1]
        yield degraded(
            "ucx-tcp-fallback",
            lines_of(seen, tls),
            "ranks of one node talk over TCP" + (f"; UCX_TLS is {tls.value}" if tls else ""),
        )
    elif across:
        seen = across[0][1]
        fast = bool(fabric and fabric.provider not in ("tcp", "sockets"))
        yield Finding(
            "ucx-tcp-fallback",
            "certain" if fast else "likely",
            lines_of(seen, tls),
            "nodes talk over TCP"
            + (f", the site's fabric is {fabric.provider}" if fast and fabric else ""),
            effect=Verdict.DEGRADED if fast else Verdict.PASS,
        )
    elif not facts.endpoints and tls and _tls_is_tcp(tls.value):
        yield Finding("ucx-tcp-fallback", "likely", (tls.evidence,), f"UCX_TLS is {tls.value}")


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
def forced_eager(context: Context) -> Iterator[Finding]:
    """The rendezvous threshold is above the measured sizes."""
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
    try:
        return parse_bytes(text)
    except ValueError:
        return 0


@cause("ucx-api-mismatch", fatal=True)
def api_mismatch(context: Context) -> Iterator[Finding]:
    """A process has libraries of two UCX versions, and the run failed."""
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
    mismatch = facts.first("ucx.api-mismatch")
    error = facts.first("ucx.error")
    if mismatch and error:
        yield Finding(
            "ucx-api-mismatch",
            "likely",
            lines_of(mismatch, error),
            f"MPI needs UCX {mismatch['required']}, {mismatch['loaded']} is loaded",
            Explains.FAILURE,
        )


@cause("sdma-cap")
def sdma_cap(context: Context) -> Iterator[Finding]:
    """Readings below the kernel engine's band are at the copy engine's maximum."""
    if context.run.engine not in ("kernel", None) or not context.site:
        return
    slow = [j for j in context.judged if j.is_slow and j.reading.evidence]
    for judged in slow[-1:]:
        cap = engine_band(context.run, judged.reading.nbytes, "sdma")
        if (
            cap
            and cap.limit < (judged.limit or 0.0)
            and cap.low <= judged.reading.value <= cap.limit
        ):
            setting = context.facts.setting("HSA_ENABLE_SDMA")
            yield Finding(
                "sdma-cap",
                "certain" if setting and setting.value == "1" else "likely",
                (judged.reading.evidence, *lines_of(setting)),  # type: ignore[arg-type]
                f"{judged.reading.value:.4g} GB/s is what the copy engine carries"
                f" ({cap.limit:g} GB/s at most), the links carry {judged.limit:g}",
            )
