# SPDX-License-Identifier: MIT
"""Causes that NCCL, RCCL and their tests show inside a node."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.explain.rules import Context, Explains, Finding, Rule
from busbar.output.reading import Evidence
from busbar.parse import nccl_log
from busbar.units import format_bytes
from busbar.verdict import Verdict

_DEFAULT_BUFFER = 4 << 20  # NCCL's documentation: NCCL_BUFFSIZE
_DEFAULT_THREADS = 512  # NCCL's documentation: NCCL_NTHREADS, recent GPUs
_LARGE = 1 << 24
"""From here on SIMPLE is what NCCL itself takes on NVLink and on networks."""
_FEW_CHANNELS = 4
_LIMITED_CHANNELS = 16
_ENOUGH_CHANNELS = 24
"""What NCCL itself takes on NVLink4: a limit from here on takes nothing away."""


def p2p_off(context: Context) -> Iterator[Finding]:
    """Connections inside a node that are not P2P, on GPUs that have links, or a setting that
    says so."""
    facts = context.facts
    ways = {way for way in facts.transports if way.startswith("SHM")}
    if context.nodes == 1:
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
    shown = bool(ways and (linked or setting or refused))
    yield Finding(
        "nccl-p2p-off",
        "certain" if shown else "likely",
        tuple(evidence),
        f"{staged} connections inside the node go by {', '.join(sorted(ways)) or 'another way'},"
        f" {direct} directly" + (f"; {setting.name} is {setting.value}" if setting else ""),
        effect=Verdict.DEGRADED if shown else Verdict.PASS,
    )


def _site_links(context: Context) -> bool:
    return bool(context.node and context.node.gpus and context.node.gpus.links)


def few_channels(context: Context) -> Iterator[Finding]:
    """A limit on channels that was set, or very few of them on GPUs that talk directly."""
    facts = context.facts
    setting = facts.setting(
        "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS", "NCCL_NCHANNELS", "NCCL_NRINGS"
    )
    configured = next(
        (s for s in facts.seen("nccl.config") if s["name"] in ("maxCTAs", "nChannels")), None
    )
    channels = facts.first("nccl.channels")
    ring = next(iter(facts.rings.values()), None)
    count = int(channels["channels"]) if channels else ring[0].channels if ring else None
    evidence: list[Evidence] = []
    if channels:
        evidence.append(channels.evidence)
    elif ring:
        evidence.append(ring[1])
    if setting and setting.value.strip().isdigit():
        limit = int(setting.value)
        # NCCL takes fewer than it may: the limit is not what holds it back.
        if limit >= _ENOUGH_CHANNELS or (channels and count is not None and limit > count):
            setting = configured = None
    if setting or configured:
        evidence.insert(0, setting.evidence if setting else configured.evidence)  # type: ignore[union-attr]
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


def slow_protocol(context: Context) -> Iterator[Finding]:
    """LL or LL128 at sizes for which NCCL takes SIMPLE when nothing is forced."""
    facts = context.facts
    setting = facts.setting("NCCL_PROTO")
    used = [
        seen
        for seen in facts.seen("nccl.algorithm")
        if nccl_log.protocol_name(seen["protocol"]) in ("LL", "LL128")
        and int(seen["nbytes"]) >= _LARGE
    ]
    if not setting:
        # NCCL itself takes LL128 with trees; it takes LL for large messages only when told to.
        used = [
            s
            for s in used
            if nccl_log.protocol_name(s["protocol"]) == "LL" and int(s["nbytes"]) >= 4 * _LARGE
        ]
    forced = setting and "SIMPLE" not in setting.value.upper() and "^" not in setting.value
    excluded = setting and setting.value.startswith("^") and "SIMPLE" in setting.value.upper()
    if not used and not forced and not excluded:
        return
    if not used and facts.seen("nccl.algorithm"):
        return  # the log shows what ran, and it was not this
    evidence = ([setting.evidence] if setting else []) + [s.evidence for s in used[-1:]]
    yield Finding(
        "nccl-slow-protocol",
        "certain" if used and setting else "likely",
        tuple(evidence),
        (
            f"{nccl_log.protocol_name(used[-1]['protocol'])} carries"
            f" {format_bytes(int(used[-1]['nbytes']))}"
            if used
            else f"NCCL_PROTO is {setting.value if setting else ''}"
        ),
    )


def impossible_choice(context: Context) -> Iterator[Finding]:
    """NCCL's complaint that what ``NCCL_ALGO`` and ``NCCL_PROTO`` leave cannot do the job."""
    for seen in context.facts.seen("nccl.no-algorithm")[:1]:
        named = [n for n in ("NCCL_ALGO", "NCCL_PROTO") if n in seen["text"]]
        settings = [s for n in ("NCCL_ALGO", "NCCL_PROTO") if (s := context.facts.setting(n))]
        if not (named or settings):
            continue
        protocol = named == ["NCCL_PROTO"] or (
            not named and [s.name for s in settings] == ["NCCL_PROTO"]
        )
        yield Finding(
            "nccl-slow-protocol" if protocol else "nccl-forced-algorithm",
            "certain",
            (seen.evidence, *(s.evidence for s in settings)),
            seen["text"],
            Explains.FAILURE,
            Verdict.FAILED,
        )


def forced_algorithm(context: Context) -> Iterator[Finding]:
    """``NCCL_ALGO`` set, and shown to be what ran, where another algorithm would be taken."""
    facts = context.facts
    setting = facts.setting("NCCL_ALGO")
    if not setting or facts.first("nccl.no-algorithm"):
        return
    value = setting.value.upper()
    ran = {nccl_log.algorithm_name(s["algorithm"]): s for s in facts.seen("nccl.algorithm")}
    large = {
        name: s for name, s in ran.items() if int(s["nbytes"]) >= _LARGE or len(ran) == 1
    } or ran
    multicast = bool(context.node and context.node.gpus and context.node.gpus.multicast)
    # A ring is what NCCL takes itself for large messages where no switch reduces.
    ring_only = "RING" in value and "TREE" not in value and "^" not in value
    if ring_only and not multicast and not (context.ranks or 0) > 64:
        return
    evidence = (setting.evidence, *[s.evidence for s in list(large.values())[-1:]])
    shown = any(name in value for name in large) and not value.startswith("^")
    yield Finding(
        "nccl-forced-algorithm",
        "certain" if shown else "likely",
        evidence,
        f"NCCL_ALGO is {setting.value}" + (f", {', '.join(large)} ran" if large else ""),
    )


def few_threads(context: Context) -> Iterator[Finding]:
    """``NCCL_NTHREADS`` below the default."""
    setting = context.facts.setting("NCCL_NTHREADS", "NCCL_LL128_NTHREADS")
    if not setting or not setting.value.lstrip("-").isdigit():
        return
    if int(setting.value) < _DEFAULT_THREADS:
        shown = context.facts.first("nccl.threads")
        evidence = (setting.evidence, *([shown.evidence] if shown else []))
        yield Finding(
            "nccl-few-threads",
            "certain",
            evidence,
            f"{setting.name} is {setting.value}, the default {_DEFAULT_THREADS}",
        )


def small_buffers(context: Context) -> Iterator[Finding]:
    """Buffers below the default."""
    facts = context.facts
    setting = facts.setting(
        "NCCL_BUFFSIZE",
        "NCCL_P2P_NVL_CHUNKSIZE",
        "NCCL_P2P_PCI_CHUNKSIZE",
        "NCCL_P2P_NET_CHUNKSIZE",
    )
    if not setting or not setting.value.isdigit():
        return
    default = _DEFAULT_BUFFER if setting.name == "NCCL_BUFFSIZE" else 1 << 17
    if int(setting.value) < default:
        chunk = facts.first("nccl.chunk")
        evidence = (setting.evidence, *([chunk.evidence] if chunk else []))
        yield Finding(
            "nccl-small-buffers",
            "certain",
            evidence,
            f"{setting.name} is {setting.value}, the default {default}",
        )


def nvls_off(context: Context) -> Iterator[Finding]:
    """NVLink SHARP turned off where the site's switch has it."""
    gpus = context.node.gpus if context.node else None
    setting = context.facts.setting("NCCL_NVLS_ENABLE")
    if gpus and gpus.multicast and setting and setting.value == "0":
        yield Finding("nccl-nvls-off", "likely", (setting.evidence,), "NCCL_NVLS_ENABLE is 0")


def launch_blocking(context: Context) -> Iterator[Finding]:
    """Launches that wait, which costs most at small sizes."""
    for name in ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"):
        setting = context.facts.setting(name)
        if setting and setting.value not in ("", "0"):
            yield Finding(
                "cuda-launch-blocking", "likely", (setting.evidence,), f"{name} is {setting.value}"
            )


def wrong_data(context: Context) -> Iterator[Finding]:
    """Wrong elements in a row, or the closing line that counts them."""
    facts = context.facts
    wrong = [r for r in facts.readings if r.wrong and r.kind != "algbw"]
    evidence = list(dict.fromkeys(r.evidence for r in wrong if r.evidence))[:3]
    if facts.out_of_bounds and not facts.out_of_bounds.okay:
        evidence.append(facts.out_of_bounds.evidence)
    bad_checks = [
        e for event, e in facts.events if event.get("event") == "check" and event.get("wrong")
    ]
    evidence += bad_checks[:3]
    if not evidence:
        return
    collective = facts.tool == "nccl-tests" or facts.tool.startswith("torch")
    yield Finding(
        "nccl-wrong-data" if collective else "wrong-data",
        "certain",
        tuple(evidence),
        f"{sum(r.wrong for r in wrong) or 'some'} wrong values",
        Explains.FAILURE,
        Verdict.FAILED,
    )


def too_few_gpus(context: Context) -> Iterator[Finding]:
    """The test's own complaint."""
    seen = context.facts.seen("tests.too-few")
    if seen:
        most = max(seen, key=lambda s: int(s["requested"]))
        yield Finding(
            "nccl-too-few-gpus",
            "certain",
            (most.evidence,),
            f"{most['requested']} GPUs needed, {most['visible']} visible",
            Explains.FAILURE,
            Verdict.FAILED,
        )


_NO_GPU = re.compile(r"has no GPU of its own: (\d+) are visible|no GPU is visible")


def no_gpu_for_a_rank(context: Context) -> Iterator[Finding]:
    """Our programs' complaint that a rank found no GPU left."""
    lines = [
        evidence
        for event, evidence in context.facts.events
        if event.get("event") == "error" and _NO_GPU.search(str(event.get("text")))
    ]
    if lines:
        nccl = context.facts.tool.startswith("torch")
        yield Finding(
            "nccl-too-few-gpus" if nccl else "too-few-gpus",
            "certain",
            tuple(lines[:3]),
            f"{len(lines)} ranks have no GPU of their own",
            Explains.FAILURE,
            Verdict.FAILED,
        )


def duplicate_gpu(context: Context) -> Iterator[Finding]:
    """NCCL's own complaint, or a device list with one GPU twice."""
    seen = context.facts.first("nccl.duplicate")
    if seen:
        yield Finding(
            "nccl-duplicate-gpu",
            "certain",
            (seen.evidence,),
            f"ranks {seen['second']} and {seen['first']} are both on the GPU at {seen['bus']}",
            Explains.FAILURE,
            Verdict.FAILED,
        )


def version_mismatch(context: Context) -> Iterator[Finding]:
    """Different NCCL versions among the ranks, or between headers and library."""
    facts = context.facts
    told = facts.first("nccl.mismatch")
    if told:
        yield Finding(
            "nccl-version-mismatch",
            "certain",
            (told.evidence,),
            f"rank {told['first']} has {told['first_version']}, rank {told['second']} has"
            f" {told['second_version']}",
            Explains.FAILURE,
            Verdict.FAILED,
        )
        return
    versions = {s["version"]: s.evidence for s in facts.seen("nccl.version")}
    if len(versions) > 1:
        yield Finding(
            "nccl-version-mismatch",
            "certain",
            tuple(versions.values())[:3],
            f"ranks have {', '.join(versions)}",
        )
    for seen in facts.seen("tests.nccl"):
        headers, library = seen["headers"], seen["library"]
        if headers and library and headers != library:
            yield Finding(
                "nccl-version-mismatch",
                "likely",
                (seen.evidence,),
                f"built with {headers}, running with {library}",
            )


RULES: tuple[Rule, ...] = (
    wrong_data,
    too_few_gpus,
    no_gpu_for_a_rank,
    duplicate_gpu,
    version_mismatch,
    p2p_off,
    few_channels,
    slow_protocol,
    impossible_choice,
    forced_algorithm,
    few_threads,
    small_buffers,
    nvls_off,
    launch_blocking,
)
