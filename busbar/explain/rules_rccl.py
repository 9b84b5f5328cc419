# SPDX-License-Identifier: MIT
"""Causes in RCCL: MSCCL, MSCCL++, and channels on a part of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from busbar.engine.reading import Evidence
from busbar.explain.catalog import CAUSES, cause
from busbar.explain.rules import Context, Finding
from busbar.parse import nccl_tests, numbers
from busbar.units import format_bytes

MI300X_CHANNELS = 32
"""The channels that RCCL uses on all 8 GPUs, and the right NCCL_MIN_NCHANNELS on fewer."""
_MSCCLPP_THRESHOLD = 1 << 20
_MSCCLPP_TYPES = frozenset({"half", "bfloat16", "float", "int32", "uint32"})


@cause("rccl-msccl-off")
def msccl_off(context: Context) -> Iterator[Finding]:
    """MSCCL++ was requested, and RCCL did not use it at the slow sizes."""
    facts = context.facts
    setting = facts.setting("RCCL_MSCCLPP_ENABLE", "RCCL_MSCCL_FORCE_ENABLE", "RCCL_MSCCL_ENABLE")
    refused = facts.first("rccl.mscclpp-off") or facts.first("rccl.msccl-off")
    if refused:
        yield Finding("rccl-msccl-off", "certain", (refused.evidence,), refused["text"])
        return
    if not setting or setting.value == "0" or setting.name != "RCCL_MSCCLPP_ENABLE":
        return
    reasons = list(mscclpp_refusals(context))
    rocm = facts.first("rocm.version")
    if rocm and any(each.fits(facts) for each in CAUSES["rccl-msccl-off"].remedies):
        reasons = [(f"RCCL of ROCm {rocm['version']} has no MSCCL++", rocm.evidence)]
    if reasons:
        yield Finding(
            "rccl-msccl-off",
            "likely",
            (setting.evidence, *(e for _, e in reasons[:3] if e)),
            "; ".join(r for r, _ in reasons),
        )


def mscclpp_refusals(context: Context) -> Iterator[tuple[str, Evidence | None]]:
    """Yield why MSCCL++ cannot serve this run, by its documented conditions."""
    facts = context.facts
    enabled, whole = facts.first("rccl.mscclpp-on"), facts.first("nccl.complete")
    if not enabled and whole:
        yield "RCCL does not report it enabled", whole.evidence
    if context.operation and context.operation not in ("all_reduce", "all_gather"):
        yield f"it does not serve {context.operation}", None
    threshold = numbers.count(enabled["threshold"]) if enabled else _MSCCLPP_THRESHOLD
    setting = facts.setting("RCCL_MSCCLPP_THRESHOLD")
    if setting and numbers.is_whole(setting.value):
        threshold = numbers.count(setting.value)
    slow = set(context.slow_sizes)
    smallest = min((row.nbytes for row, _ in facts.rows), default=0)
    for row, evidence in facts.rows:
        # A run of only large sizes is never served, even if no band says that they are slow.
        judged = row.nbytes in slow or smallest > threshold
        reason = _refused_row(row, threshold, judged, context.operation)
        if reason:
            yield reason, evidence
            break
    per_process = Counter((device.host, device.pid) for device in facts.devices.values())
    if any(n > 1 for n in per_process.values()):
        yield "one process drives several GPUs", None


def _refused_row(
    row: nccl_tests.Row, threshold: int, slow: bool, operation: str | None
) -> str | None:
    if operation == "all_reduce" and row.redop not in ("sum", ""):
        return f"operator {row.redop}"
    if operation == "all_reduce" and row.type not in _MSCCLPP_TYPES:
        return f"type {row.type}"
    if row.nbytes % 32:
        return f"{row.nbytes} bytes is not a multiple of 32"
    if slow and row.nbytes > threshold:
        return f"{format_bytes(row.nbytes)} is above the threshold of {format_bytes(threshold)}"
    return None


@cause("rccl-few-gpus-few-channels")
def few_gpus_few_channels(context: Context) -> Iterator[Finding]:
    """RCCL runs on a part of an MI300X node without a minimum of channels."""
    facts = context.facts
    names = {d.name for d in facts.devices.values()}
    site_gpus = context.node.gpus if context.node else None
    mi300x = any("MI300" in name for name in names) or bool(
        site_gpus and "MI300" in site_gpus.model
    )
    channels = facts.first("nccl.channels")
    by_rccl = facts.tool in ("nccl-tests", "torch_collectives") or channels
    if not (mi300x and by_rccl and context.ranks) or context.nodes not in (1, None):
        return
    if context.ranks >= (site_gpus.count if site_gpus else 8):
        return
    minimum = facts.setting("NCCL_MIN_NCHANNELS")
    if minimum and numbers.count(minimum.value) >= MI300X_CHANNELS:
        return
    if channels and numbers.count(channels["channels"]) < MI300X_CHANNELS:
        yield Finding(
            "rccl-few-gpus-few-channels",
            "certain",
            (channels.evidence,),
            f"{channels['channels']} channels for {context.ranks} GPUs",
        )
    elif not channels:
        rows = tuple(r.evidence for r in context.largest_rates[:1] if r.evidence)
        yield Finding(
            "rccl-few-gpus-few-channels",
            "likely",
            rows,
            f"{context.ranks} of 8 GPUs; the channels are not shown",
        )
