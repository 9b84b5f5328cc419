# SPDX-License-Identifier: MIT
"""Causes in the network between nodes: sockets, GPUDirect, rails and NICs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.engine.identify import gpu_models
from busbar.engine.reading import Evidence
from busbar.explain.catalog import cause
from busbar.explain.rails import crossings
from busbar.explain.rules import Context, Finding, degraded, failure
from busbar.parse import numbers
from busbar.site.family import Instance
from busbar.site.load import family_named
from busbar.verdict import Verdict

_FALL = 0.85
"""A busbw this far below its peak at larger sizes is a fall: repeated runs differ by a few
percent."""
_FALL_FROM = 1 << 24
_MOST_GPUS = 8
"""Nodes with more GPUs are rare: more ranks are on several nodes."""
_LINE_RATE = 0.7
"""Share of the NICs' rate from which a direct path has nothing to gain."""
_SMALL_GPUS = re.compile(r"\b(?:T4G?|L4|A10G?|A2|P4|M60|K80|RTX|GeForce|Quadro)\b")
"""GPUs of instances whose network is slower than copies through the host."""


def across_nodes(context: Context) -> bool:
    """Return whether the run is known to use several nodes."""
    return (
        bool(context.nodes and context.nodes > 1) or context.facts.tool == "nccl_message_transfer"
    )


def spans_nodes(context: Context) -> bool:
    """Return whether the run uses several nodes, even if the log is that of one rank."""
    facts = context.facts
    if across_nodes(context):
        return True
    ranks = max(map(numbers.count, facts.values("nccl.init", "ranks")), default=0)
    return ranks > _MOST_GPUS and len(facts.hosts) <= 1 and len(facts.processes) < ranks


def _staging_costs(context: Context) -> bool:
    """Return whether the rates leave room for a direct path: they are not those of the NICs."""
    rates = [r.value for r in context.largest_rates if r.kind == "busbw"]
    if not rates:
        return True
    if context.judged:
        return any(each.verdict is not Verdict.PASS for each in context.judged)
    speeds = {
        s["nic"]: numbers.real(s["gb_per_s"]) or 0.0 for s in context.facts.seen("nccl.net-speed")
    }
    if speeds:
        return max(rates) < _LINE_RATE * sum(speeds.values())
    models = gpu_models(context.facts)
    return not models or not all(_SMALL_GPUS.search(model) for model in models)


def instance_type(context: Context) -> str | None:
    """Return the EC2 instance type that the site states or the network plugin prints."""
    if context.node and context.node.instance_type:
        return context.node.instance_type
    printed = context.facts.values("ofi.topology", "instance")
    return next((name for name in printed if name in family_named("efa").instances), None)


def instance_of(context: Context) -> Instance | None:
    """Return the facts of the instance type; None if it is unknown."""
    name = instance_type(context)
    return family_named("efa").instances.get(name) if name else None


def provider_of(context: Context) -> str | None:
    """Return the transport that the site's fabric needs."""
    return context.site.fabric.provider if context.site and context.site.fabric else None


@cause("nccl-socket-fallback")
def socket_fallback(context: Context) -> Iterator[Finding]:
    """Connections use NET/Socket, or it is the only network between nodes."""
    facts = context.facts
    used = [way for way in facts.transports if way.startswith("NET/Socket")]
    named = [s for s in facts.seen("nccl.network") if s["name"] == "Socket"]
    others = [s for s in facts.seen("nccl.network") if s["name"] != "Socket"]
    if provider_of(context) in ("tcp", "sockets"):
        return
    evidence: list[Evidence] = [facts.transport_lines[way] for way in used]
    if missing := facts.first("nccl.net-missing"):
        yield failure(
            "nccl-socket-fallback", [missing.evidence], "NCCL found no InfiniBand device"
        )
        return
    refused = facts.first("nccl.ib-failed")
    if not used:
        if not (named and not others and (spans_nodes(context) or refused)):
            return
        evidence = [named[0].evidence]
    for kind in ("nccl.ib-failed", "nccl.ib-none", "nccl.no-plugin"):
        if seen := facts.first(kind):
            evidence.append(seen.evidence)
    for name in ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_SHM_DISABLE"):
        if (setting := facts.setting(name)) and setting.value != "0":
            evidence.insert(0, setting.evidence)
    yield degraded(
        "nccl-socket-fallback",
        tuple(evidence),
        f"{sum(facts.transports[way] for way in used) or 'the'} connections over TCP sockets",
    )


@cause("gdr-off")
def gdr_off(context: Context) -> Iterator[Finding]:
    """Network connections do not use GPUDirect, or NCCL or the plugin reports it off."""
    facts = context.facts
    expected = _gdr_expected(context)
    if not spans_nodes(context) or expected is False:
        return
    if expected is None and not _staging_costs(context):
        return
    network = [w for w in facts.transports if w.startswith("NET/") and "Socket" not in w]
    plain = [w for w in network if not w.endswith("/GDRDMA")]
    refused = facts.seen("ofi.gdr-off")
    disabled = [
        s
        for s in facts.seen("nccl.gdr-hca")
        if s["state"] == "Disabled" and s["network"] != "Socket"
    ] + [s for s in facts.seen("nccl.gdr-gpu") if s["state"] == "Disabled"]
    direct = sum(facts.transports[w] for w in network if w.endswith("/GDRDMA"))
    staged = sum(facts.transports[w] for w in plain)
    if direct and not staged:
        return
    level = facts.setting("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ")
    evidence = [s.evidence for s in refused[:1]] + [facts.transport_lines[w] for w in plain[:2]]
    evidence += [s.evidence for s in disabled[:2]]
    if not evidence:
        return
    if level:
        evidence.insert(0, level.evidence)
    shown = bool(staged or refused or (disabled and not direct))
    yield Finding(
        "gdr-off",
        "certain" if shown and not direct else "likely",
        tuple(evidence),
        f"{staged} connections between nodes without GPUDirect, {direct} with it"
        if network
        else "GPUDirect is off",
        effect=Verdict.DEGRADED if shown else Verdict.PASS,
    )


def _gdr_expected(context: Context) -> bool | None:
    if context.node and context.node.nics:
        return any(nic.gpudirect for nic in context.node.nics)
    instance = instance_of(context)
    return instance.gpudirect if instance else None


_WITHOUT_RAILS = frozenset({"efa", "cxi", "tcp", "sockets"})
"""Fabrics with one network, or that spread the packets of a pair over all paths."""


def _on_rails(context: Context) -> bool:
    """Return whether the switch of a NIC matters to the traffic between nodes."""
    if provider_of(context) in _WITHOUT_RAILS or instance_of(context):
        return False
    facts = context.facts
    networks = {way.split("/")[1] for way in facts.transports if way.startswith("NET/")}
    networks = networks or set(facts.values("nccl.network", "name"))
    return not networks or any(n != "Socket" and "Libfabric" not in n for n in networks)


@cause("rail-mismatch")
def rails(context: Context) -> Iterator[Finding]:
    """Ring neighbours use NICs of different rails."""
    if not _on_rails(context):
        return
    crossed = [c for c in crossings(context.facts, context.node) if c.same_rail is False]
    if not crossed:
        return
    pairs = [c.pair for c in crossed]
    nics = sorted({c.nics for c in crossed})
    yield Finding(
        "rail-mismatch",
        "certain",
        tuple(dict.fromkeys(c.evidence for c in crossed))[:4],
        f"pairs {', '.join(pairs)} cross rails over {', '.join(nics)}",
        details={"pairs": pairs, "nics": nics},
    )


@cause("ecmp-collision")
def ecmp(context: Context) -> Iterator[Finding]:
    """A rate between nodes falls as messages grow."""
    fall = falling(context)
    if not fall or not across_nodes(context):
        return
    peak, last, evidence = fall
    yield degraded(
        "ecmp-collision",
        evidence,
        f"busbw falls from {peak:.4g} to {last:.4g} GB/s as messages grow",
        "likely",
    )


def falling(context: Context) -> tuple[float, float, tuple[Evidence, ...]] | None:
    """Return peak and last value of a curve that falls after its peak, with their rows."""
    for in_place in (False, True):
        curve = sorted(
            (r for r in context.facts.readings if r.kind == "busbw" and r.in_place is in_place),
            key=lambda r: r.nbytes,
        )
        curve = [r for r in curve if r.nbytes >= _FALL_FROM]
        if len(curve) < 3:
            continue
        peak = max(curve, key=lambda r: r.value)
        last = curve[-1]
        if last is not peak and last.value < _FALL * peak.value:
            return peak.value, last.value, tuple(r.evidence for r in (peak, last) if r.evidence)
    return None


@cause("nic-count-short")
def nic_count(context: Context) -> Iterator[Finding]:
    """Fewer NICs are in use than the instance or the site has."""
    facts = context.facts
    expected = context.node.nic_count if context.node else None
    if not expected and (instance := instance_of(context)):
        expected = instance.nics
    if not expected:
        return
    for seen in facts.seen("ofi.provider"):
        if seen["nics"] and numbers.count(seen["nics"]) < expected:
            yield degraded(
                "nic-count-short",
                (seen.evidence,),
                f"{seen['nics']} NICs found,"
                f" {instance_type(context) or 'a node of the site'} has {expected}",
            )
            return
    for seen in facts.seen("nccl.ib-devices"):
        used = len(re.findall(r"\[\d+\]", seen["devices"]))
        if used < expected and across_nodes(context):
            yield degraded(
                "nic-count-short", (seen.evidence,), f"{used} NICs in use, a node has {expected}"
            )
            return
