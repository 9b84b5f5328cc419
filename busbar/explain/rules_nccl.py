# SPDX-License-Identifier: MIT
"""Causes that NCCL, RCCL and their tests show inside a node."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.identify import nccl_versions
from busbar.explain.catalog import CAUSES, cause
from busbar.explain.rules import Context, Finding, failure, finding, words_of
from busbar.explain.rules_fabric import spans_nodes
from busbar.parse import nccl_log, numbers
from busbar.parse.events import Check
from busbar.units import format_bytes
from busbar.verdict import Verdict
from busbar.words import counted

_LARGE = 1 << 24
"""From this size on NCCL by default uses SIMPLE on NVLink and on networks."""
_HOST_GB_PER_S = 40.0
"""Copies through the host are slower; NVLink and XGMI are faster."""
_FEW_CHANNELS = 4
_LIMITED_CHANNELS = 16
_ENOUGH_CHANNELS = 24
"""The number that NCCL uses on NVLink4: a limit of as many has no effect."""


@cause("nccl-p2p-off", hides=["nccl-few-channels"])
def p2p_off(context: Context) -> Finding | None:
    """Connections inside a node are not P2P although GPUs have links, or a setting forbids it."""
    facts = context.facts
    ways = {way for way in facts.transports if way.startswith("SHM")}
    if context.nodes == 1 and not spans_nodes(context):
        ways |= {way for way in facts.transports if way.startswith("NET/")}
    setting = facts.setting("NCCL_P2P_DISABLE")
    if setting and setting.value.strip() in ("0", ""):
        setting = None
    level = facts.setting("NCCL_P2P_LEVEL")
    if level and level.value.upper() in ("LOC", "0"):
        setting = setting or level
    refused = facts.first("nccl.p2p-disabled") or facts.first("nccl.p2p-failed")
    linked = facts.first("nccl.nvlink") or (
        context.node and context.node.gpus and context.node.gpus.links
    )
    direct = sum(n for way, n in facts.transports.items() if way.startswith("P2P"))
    staged = sum(facts.transports[way] for way in ways)
    if not (ways or setting or refused) or (direct and not refused and staged < direct):
        return None
    shown = bool(ways and (linked or setting or refused)) or bool(setting and _staged(context))
    others = ", ".join(sorted(ways)) or "other transports"
    return finding(
        f"{staged} connections inside the node use {others}, {direct} are direct"
        f"{words_of(setting)}",
        *(refused, setting, *[facts.transport_lines[way] for way in sorted(ways)][:2]),
        certain=shown,
        effect=Verdict.DEGRADED if shown else Verdict.PASS,
    )


def _staged(context: Context) -> bool:
    """Return whether the rates of one node without a band match copies by the host."""
    rates = [r.value for r in context.largest_rates if r.nbytes >= _LARGE]
    one_node = context.nodes in (None, 1)
    return one_node and not context.judged and bool(rates) and max(rates) < _HOST_GB_PER_S


@cause("nccl-few-channels")
def few_channels(context: Context) -> Finding | None:
    """A setting limits the channels, or GPUs that talk directly have very few."""
    facts = context.facts
    setting = facts.setting(
        "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS", "NCCL_NCHANNELS", "NCCL_NRINGS"
    )
    configured = next(
        (s for s in facts.seen("nccl.config") if s["name"] in ("maxCTAs", "nChannels")), None
    )
    channels = facts.first("nccl.channels")
    ring = next(iter(facts.rings.values()), None)
    count = numbers.count(channels["channels"]) if channels else ring[0].channels if ring else None
    line = channels or (ring[1] if ring else None)
    if setting and numbers.is_whole(setting.value.strip()):
        limit = numbers.count(setting.value)
        # NCCL uses fewer than the limit allows: the limit is not the cause.
        if limit >= _ENOUGH_CHANNELS or (channels and count is not None and limit > count):
            setting = configured = None
    if setting or configured:
        many = "an unknown number of channels" if count is None else counted(count, "channel")
        certain = count is not None and count <= _LIMITED_CHANNELS
        summary = f"{many}{words_of(setting)}"
        return finding(summary, setting or configured, line, certain=certain)
    direct = any(way.startswith("P2P") for way in facts.transports)
    if direct and facts.first("nccl.nvlink") and count is not None and count <= _FEW_CHANNELS:
        return finding(counted(count, "channel"), line, certain=False)
    return None


@cause("nccl-slow-protocol", fatal=True)
def slow_protocol(context: Context) -> Finding | None:
    """LL or LL128 at sizes for which NCCL by default uses SIMPLE."""
    facts = context.facts
    setting = facts.setting("NCCL_PROTO")
    # By default NCCL uses LL128 with trees; it uses LL for large messages only if forced.
    slow, least = (("LL", "LL128"), _LARGE) if setting else (("LL",), 4 * _LARGE)
    used = [
        seen
        for seen in facts.seen("nccl.algorithm")
        if nccl_log.protocol_name(seen["protocol"]) in slow
        and numbers.count(seen["nbytes"]) >= least
    ]
    if used:
        last = used[-1]
        size = format_bytes(numbers.count(last["nbytes"]))
        summary = f"{nccl_log.protocol_name(last['protocol'])} carries {size}"
        return finding(summary, setting, last, certain=setting is not None)
    # The log can show another protocol.
    if setting and not facts.seen("nccl.algorithm"):
        value = setting.value
        simple = "SIMPLE" in value.upper()
        if value.startswith("^") if simple else "^" not in value:
            return finding(f"NCCL_PROTO is {value}", setting, certain=False)
    return None


@cause("nccl-slow-protocol", "nccl-forced-algorithm", fatal=True)
def impossible_choice(context: Context) -> Finding | None:
    """NCCL has no algorithm or protocol left by ``NCCL_ALGO`` and ``NCCL_PROTO``."""
    message = context.facts.first("nccl.no-algorithm")
    if not message:
        return None
    named = [n for n in ("NCCL_ALGO", "NCCL_PROTO") if n in message["text"]]
    settings = [s for n in ("NCCL_ALGO", "NCCL_PROTO") if (s := context.facts.setting(n))]
    if not (named or settings):
        return None
    protocol = (named or [s.name for s in settings]) == ["NCCL_PROTO"]
    id_ = "nccl-slow-protocol" if protocol else "nccl-forced-algorithm"
    return failure(message["text"], message, *settings, id_=id_)


@cause("nccl-forced-algorithm")
def forced_algorithm(context: Context) -> Finding | None:
    """``NCCL_ALGO`` is set, and NCCL would use another algorithm without it."""
    facts = context.facts
    setting = facts.setting("NCCL_ALGO")
    if not setting or facts.first("nccl.no-algorithm"):
        return None
    value = setting.value.upper()
    ran = {nccl_log.algorithm_name(s["algorithm"]): s for s in facts.seen("nccl.algorithm")}
    large = {
        name: s for name, s in ran.items() if numbers.count(s["nbytes"]) >= _LARGE or len(ran) == 1
    } or ran
    multicast = bool(context.node and context.node.gpus and context.node.gpus.multicast)
    # By default NCCL uses a ring for large messages, unless a switch reduces.
    ring_only = "RING" in value and "TREE" not in value and "^" not in value
    if ring_only and not multicast and not (context.ranks or 0) > 64:
        return None
    shown = any(name in value for name in large) and not value.startswith("^")
    summary = f"NCCL_ALGO is {setting.value}" + (f", {', '.join(large)} ran" if large else "")
    return finding(summary, setting, *[*large.values()][-1:], certain=shown)


@cause("nccl-nvls-off")
def nvls_off(context: Context) -> Finding | None:
    """NVLink SHARP is turned off, and with it a slow reading could be faster."""
    gpus = context.node.gpus if context.node else None
    setting = context.facts.setting("NCCL_NVLS_ENABLE")
    if not (gpus and gpus.multicast and setting and setting.value == "0"):
        return None
    slow = any(each.is_slow and each.limit for each in context.judged)
    if slow and (context.operation != "all_reduce" or context.ranks == 2):
        return None  # the switch multiplies no other data
    return finding("NCCL_NVLS_ENABLE is 0", setting, certain=False)


@cause("cuda-launch-blocking")
def launch_blocking(context: Context) -> Iterator[Finding]:
    """Launches wait for the kernel, which costs most at small sizes."""
    for name in ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        setting = context.facts.setting(name)
        if setting and setting.value not in ("", "0"):
            yield finding(f"{name} is {setting.value}", setting, certain=False)


@cause("nccl-wrong-data", "wrong-data", hides=["rank-died"])
def wrong_data(context: Context) -> Finding | None:
    """A row or the closing line counts wrong elements."""
    facts = context.facts
    wrong = [r for r in facts.readings if r.wrong and r.kind != "algbw"]
    lines = [*dict.fromkeys(r.evidence for r in wrong if r.evidence)][:3]
    if facts.out_of_bounds and not facts.out_of_bounds.okay:
        lines.append(facts.out_of_bounds.evidence)
    lines += [line for check, line in facts.events_of(Check) if check.wrong or check.late][:3]
    if not lines:
        return None
    collective = facts.tool == "nccl-tests" or facts.tool.startswith("torch")
    id_ = "nccl-wrong-data" if collective else "wrong-data"
    text = f"{sum(r.wrong for r in wrong) or 'some'} wrong values"
    if wrong and (first := wrong[0]).source is not None:
        text += f", first at {format_bytes(first.nbytes)} from {first.source} to {first.target}"
    return failure(text, *lines, id_=id_)


@cause("nccl-version-mismatch")
def version_mismatch(context: Context) -> Finding | None:
    """NCCL versions differ among the ranks, or between its log and the program."""
    shown = nccl_versions(context.facts).items()
    # What is before or after a table is of another program.
    other = [
        v for v, line in shown if (context.results and context.ends(line)) or context.may_end(line)
    ]
    versions = {version: line for version, line in shown if version not in other}
    if len(versions) < 2:
        return None
    # Once a communicator came up, the versions can come from two programs.
    up = context.facts.first("nccl.complete") is not None
    summary = f"the output names {', '.join(versions)}"
    effect = Verdict.PASS if up else Verdict.FAILED
    return failure(summary, *[*versions.values()][:3], certain=not up, effect=effect)


# ---- RCCL: MSCCL, MSCCL++, and channels on a part of a node
_MI300X_CHANNELS = 32
"""The channels that RCCL uses on all 8 GPUs, and the right NCCL_MIN_NCHANNELS on fewer."""
_MSCCLPP_THRESHOLD = 1 << 20


@cause("rccl-msccl-off")
def msccl_off(context: Context) -> Finding | None:
    """RCCL refuses MSCCL or MSCCL++, does not have it, or uses it up to smaller sizes only."""
    facts = context.facts
    refused = facts.first("rccl.mscclpp-off") or facts.first("rccl.msccl-off")
    if refused:
        return finding(refused["text"], refused)
    setting = facts.setting("RCCL_MSCCLPP_ENABLE")
    if not setting or setting.value == "0":
        return None
    rocm, whole = facts.first("rocm.version"), facts.first("nccl.complete")
    enabled, limit = facts.first("rccl.mscclpp-on"), facts.setting("RCCL_MSCCLPP_THRESHOLD")
    threshold = numbers.count(enabled["threshold"]) if enabled else _MSCCLPP_THRESHOLD
    if limit and numbers.is_whole(limit.value):
        threshold = numbers.count(limit.value)
    largest = max(context.slow_sizes, default=0)
    if rocm and any(each.fits(facts) for each in CAUSES["rccl-msccl-off"].remedies):
        text = f"RCCL of ROCm {rocm['version']} has no MSCCL++"
    elif whole and not enabled:
        text = "RCCL does not report MSCCL++ as enabled"
    elif largest > threshold:
        text = f"{format_bytes(largest)} is above the threshold of {format_bytes(threshold)}"
    else:
        return None
    return finding(text, setting, rocm or whole, certain=False)


@cause("rccl-few-gpus-few-channels")
def few_gpus_few_channels(context: Context) -> Finding | None:
    """RCCL runs on a part of an MI300X node without a minimum of channels."""
    facts = context.facts
    site_gpus = context.node.gpus if context.node else None
    names = {d.name for d in facts.devices.values()} | ({site_gpus.model} if site_gpus else set())
    channels = facts.first("nccl.channels")
    by_rccl = facts.tool in ("nccl-tests", "torch_collectives") or channels
    mi300x = any("MI300" in name for name in names)
    if not (mi300x and by_rccl and context.ranks) or context.nodes not in (1, None):
        return None
    if context.ranks >= (site_gpus.count if site_gpus else 8):
        return None
    minimum = facts.setting("NCCL_MIN_NCHANNELS")
    if minimum and numbers.count(minimum.value) >= _MI300X_CHANNELS:
        return None
    if not channels:
        summary = f"{context.ranks} of 8 GPUs; the channels are not shown"
        return finding(summary, *context.largest_rates[:1], certain=False)
    if numbers.count(channels["channels"]) < _MI300X_CHANNELS:
        return finding(f"{channels['channels']} channels for {context.ranks} GPUs", channels)
    return None
