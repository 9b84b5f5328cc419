# SPDX-License-Identifier: MIT
"""Causes that NCCL, RCCL and their tests show inside a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from busbar.engine.expectation import expectation_of
from busbar.engine.identify import nccl_versions
from busbar.engine.reading import Evidence, Note
from busbar.engine.verdicts import Judged, judge_reading
from busbar.explain.catalog import cause, note
from busbar.explain.rules import Context, Finding, failure, lines_of
from busbar.explain.rules_fabric import spans_nodes
from busbar.parse import nccl_log, numbers
from busbar.parse.events import Check, Error
from busbar.units import format_bytes
from busbar.verdict import Verdict

_LARGE = 1 << 24
"""From this size on NCCL by default uses SIMPLE on NVLink and on networks."""
_HOST_GB_PER_S = 40.0
"""Copies through the host are slower; NVLink and XGMI are faster."""
_FEW_CHANNELS = 4
_LIMITED_CHANNELS = 16
_ENOUGH_CHANNELS = 24
"""The number that NCCL uses on NVLink4: a limit of as many has no effect."""


@cause("nccl-p2p-off", hides=["nccl-few-channels"])
def p2p_off(context: Context) -> Iterator[Finding]:
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
    linked = facts.first("nccl.nvlink") or _site_links(context)
    if not (ways or setting or refused):
        return
    direct = sum(n for way, n in facts.transports.items() if way.startswith("P2P"))
    staged = sum(facts.transports[way] for way in ways)
    if direct and not refused and staged < direct:
        return
    evidence = [facts.transport_lines[way] for way in sorted(ways)][:2]
    if setting:
        evidence.insert(0, setting.evidence)
    if refused:
        evidence.insert(0, refused.evidence)
    shown = bool(ways and (linked or setting or refused)) or bool(setting and _staged(context))
    yield Finding(
        "nccl-p2p-off",
        "certain" if shown else "likely",
        tuple(evidence),
        f"{staged} connections inside the node use"
        f" {', '.join(sorted(ways)) or 'other transports'}, {direct} are direct"
        + (f"; {setting.name} is {setting.value}" if setting else ""),
        effect=Verdict.DEGRADED if shown else Verdict.PASS,
    )


def _staged(context: Context) -> bool:
    """Return whether the rates of one node without a band are those of copies by the host."""
    rates = [r.value for r in context.largest_rates if r.nbytes >= _LARGE]
    one_node = context.nodes in (None, 1)
    return one_node and not context.judged and bool(rates) and max(rates) < _HOST_GB_PER_S


def _site_links(context: Context) -> bool:
    return bool(context.node and context.node.gpus and context.node.gpus.links)


@cause("nccl-few-channels")
def few_channels(context: Context) -> Iterator[Finding]:
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
    evidence: list[Evidence] = []
    if channels:
        evidence.append(channels.evidence)
    elif ring:
        evidence.append(ring[1])
    if setting and numbers.is_whole(setting.value.strip()):
        limit = numbers.count(setting.value)
        # NCCL uses fewer than the limit allows: the limit is not the cause.
        if limit >= _ENOUGH_CHANNELS or (channels and count is not None and limit > count):
            setting = configured = None
    if limited := setting or configured:
        evidence.insert(0, limited.evidence)
        yield Finding(
            "nccl-few-channels",
            "certain" if count is not None and count <= _LIMITED_CHANNELS else "likely",
            tuple(evidence),
            f"{count if count is not None else 'an unknown number of'} channels"
            + (f"; {setting.name} is {setting.value}" if setting else ""),
        )
        return
    direct = any(way.startswith("P2P") for way in facts.transports)
    if direct and facts.first("nccl.nvlink") and count is not None and count <= _FEW_CHANNELS:
        yield Finding("nccl-few-channels", "likely", tuple(evidence), f"{count} channels")


@cause("nccl-slow-protocol", fatal=True)
def slow_protocol(context: Context) -> Iterator[Finding]:
    """LL or LL128 at sizes for which NCCL by default uses SIMPLE."""
    facts = context.facts
    setting = facts.setting("NCCL_PROTO")
    used = [
        seen
        for seen in facts.seen("nccl.algorithm")
        if nccl_log.protocol_name(seen["protocol"]) in ("LL", "LL128")
        and numbers.count(seen["nbytes"]) >= _LARGE
    ]
    if not setting:
        # By default NCCL uses LL128 with trees; it uses LL for large messages only if forced.
        used = [
            s
            for s in used
            if nccl_log.protocol_name(s["protocol"]) == "LL"
            and numbers.count(s["nbytes"]) >= 4 * _LARGE
        ]
    forced = setting and "SIMPLE" not in setting.value.upper() and "^" not in setting.value
    excluded = setting and setting.value.startswith("^") and "SIMPLE" in setting.value.upper()
    if not used and not forced and not excluded:
        return
    if not used and facts.seen("nccl.algorithm"):
        return  # the log shows another protocol
    evidence = lines_of(setting, *used[-1:])
    yield Finding(
        "nccl-slow-protocol",
        "certain" if used and setting else "likely",
        evidence,
        (
            f"{nccl_log.protocol_name(used[-1]['protocol'])} carries"
            f" {format_bytes(numbers.count(used[-1]['nbytes']))}"
            if used
            else f"NCCL_PROTO is {setting.value if setting else ''}"
        ),
    )


@cause("nccl-slow-protocol", "nccl-forced-algorithm", fatal=True)
def impossible_choice(context: Context) -> Iterator[Finding]:
    """NCCL has no algorithm or protocol left by ``NCCL_ALGO`` and ``NCCL_PROTO``."""
    for message in context.facts.seen("nccl.no-algorithm")[:1]:
        named = [n for n in ("NCCL_ALGO", "NCCL_PROTO") if n in message["text"]]
        settings = [s for n in ("NCCL_ALGO", "NCCL_PROTO") if (s := context.facts.setting(n))]
        if not (named or settings):
            continue
        protocol = named == ["NCCL_PROTO"] or (
            not named and [s.name for s in settings] == ["NCCL_PROTO"]
        )
        id_ = "nccl-slow-protocol" if protocol else "nccl-forced-algorithm"
        yield failure(id_, lines_of(message, *settings), message["text"])


@cause("nccl-forced-algorithm")
def forced_algorithm(context: Context) -> Iterator[Finding]:
    """``NCCL_ALGO`` is set, and NCCL would use another algorithm without it."""
    facts = context.facts
    setting = facts.setting("NCCL_ALGO")
    if not setting or facts.first("nccl.no-algorithm"):
        return
    value = setting.value.upper()
    ran = {nccl_log.algorithm_name(s["algorithm"]): s for s in facts.seen("nccl.algorithm")}
    large = {
        name: s for name, s in ran.items() if numbers.count(s["nbytes"]) >= _LARGE or len(ran) == 1
    } or ran
    multicast = bool(context.node and context.node.gpus and context.node.gpus.multicast)
    # By default NCCL uses a ring for large messages, unless a switch reduces.
    ring_only = "RING" in value and "TREE" not in value and "^" not in value
    if ring_only and not multicast and not (context.ranks or 0) > 64:
        return
    evidence = lines_of(setting, *list(large.values())[-1:])
    shown = any(name in value for name in large) and not value.startswith("^")
    yield Finding(
        "nccl-forced-algorithm",
        "certain" if shown else "likely",
        evidence,
        f"NCCL_ALGO is {setting.value}" + (f", {', '.join(large)} ran" if large else ""),
    )


@cause("nccl-nvls-off")
def nvls_off(context: Context) -> Iterator[Finding]:
    """NVLink SHARP is turned off, and with it a slow reading could be faster."""
    gpus = context.node.gpus if context.node else None
    setting = context.facts.setting("NCCL_NVLS_ENABLE")
    if not (gpus and gpus.multicast and setting and setting.value == "0"):
        return
    slow = [each for each in context.judged if each.is_slow and each.limit]
    if slow and not _limited_by_rings(context, slow):
        return
    yield Finding("nccl-nvls-off", "likely", (setting.evidence,), "NCCL_NVLS_ENABLE is 0")


def _limited_by_rings(context: Context, slow: Sequence[Judged]) -> bool:
    """Whether the limit of a reading is lower where no switch multiplies its data."""
    site = context.site
    if site is None:
        return False
    types = {
        name: node.model_copy(update={"gpus": node.gpus.model_copy(update={"multicast": False})})
        if node.gpus
        else node
        for name, node in site.node_types.items()
    }
    rings = replace(context.run, site=site.model_copy(update={"node_types": types}))
    expect = expectation_of(rings)
    return any((judge_reading(j.reading, expect).limit or 0) < (j.limit or 0) for j in slow)


@cause("cuda-launch-blocking")
def launch_blocking(context: Context) -> Iterator[Finding]:
    """Launches wait for the kernel, which costs most at small sizes."""
    for name in ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        setting = context.facts.setting(name)
        if setting and setting.value not in ("", "0"):
            yield Finding(
                "cuda-launch-blocking", "likely", (setting.evidence,), f"{name} is {setting.value}"
            )


@cause("nccl-wrong-data", "wrong-data", hides=["rank-died"])
def wrong_data(context: Context) -> Iterator[Finding]:
    """A row or the closing line counts wrong elements."""
    facts = context.facts
    wrong = [r for r in facts.readings if r.wrong and r.kind != "algbw"]
    evidence = list(dict.fromkeys(r.evidence for r in wrong if r.evidence))[:3]
    if facts.out_of_bounds and not facts.out_of_bounds.okay:
        evidence.append(facts.out_of_bounds.evidence)
    evidence += [line for check, line in facts.events_of(Check) if check.wrong][:3]
    if not evidence:
        return
    collective = facts.tool == "nccl-tests" or facts.tool.startswith("torch")
    id_ = "nccl-wrong-data" if collective else "wrong-data"
    yield failure(id_, evidence, f"{sum(r.wrong for r in wrong) or 'some'} wrong values")


@cause("nccl-too-few-gpus", fatal=True)
def too_few_gpus(context: Context) -> Iterator[Finding]:
    """The test complains that GPUs are missing."""
    complaints = context.facts.seen("tests.too-few")
    if complaints:
        most = max(complaints, key=lambda complaint: numbers.count(complaint["requested"]))
        summary = f"{most['requested']} GPUs needed, {most['visible']} visible"
        yield failure("nccl-too-few-gpus", [most.evidence], summary)


@cause("nccl-too-few-gpus", "too-few-gpus", fatal=True)
def no_gpu_for_a_rank(context: Context) -> Iterator[Finding]:
    """One of our programs reports that a rank has no GPU."""
    errors = [(e, line) for e, line in context.facts.events_of(Error) if e.code == "too-few-gpus"]
    if errors:
        nccl = context.facts.tool.startswith("torch")
        id_ = "nccl-too-few-gpus" if nccl else "too-few-gpus"
        several = f"{len(errors)} ranks have no GPU of their own"
        summary = several if errors[1:] else errors[0][0].text
        yield failure(id_, [line for _, line in errors[:3]], summary)


@cause("nccl-version-mismatch")
def version_mismatch(context: Context) -> Iterator[Finding]:
    """NCCL versions differ among the ranks, or between its log and the program."""
    versions = nccl_versions(context.facts)
    if len(versions) > 1:
        lines = tuple(versions.values())[:3]
        yield failure("nccl-version-mismatch", lines, f"the output names {', '.join(versions)}")


@note("nccl-version-mismatch")
def _headers(context: Context) -> Iterator[Note]:
    """Newer or older headers make no run slow; what they break fails to start."""
    for message in context.facts.seen("tests.nccl"):
        headers, library = message["headers"], message["library"]
        if headers and library and headers != library:
            summary = f"built with {headers}, running with {library}"
            yield Note("nccl-version-mismatch", summary, (message.evidence,))
