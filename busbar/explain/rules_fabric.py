# SPDX-License-Identifier: MIT
"""Causes in the network between nodes: sockets, GPUDirect, rails, EFA and libfabric."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.explain.catalog import cause
from busbar.explain.rails import crossings
from busbar.explain.rules import Context, Explains, Finding
from busbar.output.reading import Evidence
from busbar.site.family import Instance
from busbar.site.load import family_named
from busbar.verdict import Verdict

_FALL = 0.85
"""A busbw this far below its peak at larger sizes is a fall: repeated runs differ by a few
percent."""
_FALL_FROM = 1 << 24
_SLOW_PROVIDERS = frozenset({"tcp", "sockets", "udp", "net", "shm"})


def _across_nodes(context: Context) -> bool:
    return (
        bool(context.nodes and context.nodes > 1) or context.facts.tool == "nccl_message_transfer"
    )


def _instance_type(context: Context) -> str | None:
    """Return the EC2 instance type that the site states or the network plugin prints."""
    if context.node and context.node.instance_type:
        return context.node.instance_type
    printed = context.facts.values("ofi.topology", "instance")
    return next((name for name in printed if name in family_named("efa").instances), None)


def _instance(context: Context) -> Instance | None:
    """Return the facts of the instance type; None if it is unknown."""
    name = _instance_type(context)
    return family_named("efa").instances.get(name) if name else None


def _provider(context: Context) -> str | None:
    return context.site.fabric.provider if context.site and context.site.fabric else None


@cause("nccl-socket-fallback")
def socket_fallback(context: Context) -> Iterator[Finding]:
    """Connections use NET/Socket, or it is the only network between nodes."""
    facts = context.facts
    used = [way for way in facts.transports if way.startswith("NET/Socket")]
    named = [s for s in facts.seen("nccl.network") if s["name"] == "Socket"]
    others = [s for s in facts.seen("nccl.network") if s["name"] != "Socket"]
    if _provider(context) in ("tcp", "sockets"):
        return
    evidence: list[Evidence] = [facts.transport_lines[way] for way in used]
    if not used:
        if not (_across_nodes(context) and named and not others):
            return
        evidence = [named[0].evidence]
    for kind in ("nccl.ib-none", "nccl.no-plugin"):
        if seen := facts.first(kind):
            evidence.append(seen.evidence)
    for name in ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_SHM_DISABLE"):
        if (setting := facts.setting(name)) and setting.value != "0":
            evidence.insert(0, setting.evidence)
    yield Finding(
        "nccl-socket-fallback",
        "certain",
        tuple(evidence),
        f"{sum(facts.transports[way] for way in used) or 'the'} connections over TCP sockets",
        effect=Verdict.DEGRADED,
    )


@cause("gdr-off")
def gdr_off(context: Context) -> Iterator[Finding]:
    """Network connections do not use GPUDirect, or NCCL or the plugin reports it off."""
    facts = context.facts
    if not _across_nodes(context):
        return
    if _gdr_expected(context) is False:
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
    instance = _instance(context)
    return instance.gpudirect if instance else None


_WITHOUT_RAILS = frozenset({"efa", "cxi", "tcp", "sockets"})
"""Fabrics with one network, or that spread the packets of a pair over all paths."""


def _on_rails(context: Context) -> bool:
    """Return whether the switch of a NIC matters to the traffic between nodes."""
    if _provider(context) in _WITHOUT_RAILS or _instance(context):
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
    if not fall or not _across_nodes(context):
        return
    peak, last, evidence = fall
    yield Finding(
        "ecmp-collision",
        "likely",
        evidence,
        f"busbw falls from {peak:.4g} to {last:.4g} GB/s as messages grow",
        effect=Verdict.DEGRADED,
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
    if not expected and (instance := _instance(context)):
        expected = instance.nics
    if not expected:
        return
    for seen in facts.seen("ofi.provider"):
        if seen["nics"] and int(seen["nics"]) < expected:
            yield Finding(
                "nic-count-short",
                "certain",
                (seen.evidence,),
                f"{seen['nics']} NICs found,"
                f" {_instance_type(context) or 'a node of the site'} has {expected}",
                effect=Verdict.DEGRADED,
            )
            return
    for seen in facts.seen("nccl.ib-devices"):
        used = len(re.findall(r"\[\d+\]", seen["devices"]))
        if used < expected and _across_nodes(context):
            yield Finding(
                "nic-count-short",
                "certain",
                (seen.evidence,),
                f"{used} NICs in use, a node has {expected}",
                effect=Verdict.DEGRADED,
            )
            return


@cause("ofi-provider-wrong", fatal=True)
def provider(context: Context) -> Iterator[Finding]:
    """libfabric uses another provider than the fabric needs."""
    facts = context.facts
    needed = _provider(context)
    on_aws = bool(_instance_type(context) or facts.first("ofi.aws-options"))
    if needed not in ("efa", "cxi", "verbs", "psm3", "opx"):
        needed = "efa" if on_aws else None
    for seen in facts.seen("ofi.provider"):
        name = seen["provider"].split(";")[0]
        if (needed and name != needed) or (not needed and name in _SLOW_PROVIDERS):
            yield Finding(
                "ofi-provider-wrong",
                "certain",
                (seen.evidence,),
                f"provider {seen['provider']}"
                + (f", the fabric needs {needed}" if needed else ""),
                effect=Verdict.DEGRADED,
            )
            return
    refused = facts.first("ofi.no-provider")
    if refused and not facts.first("ofi.provider"):
        yield Finding(
            "ofi-provider-wrong",
            "certain",
            (refused.evidence,),
            refused["text"],
            Explains.FAILURE,
            effect=Verdict.DEGRADED,
        )


def _complete(context: Context) -> Evidence | None:
    """Return the line that shows that NCCL's log is complete from initialisation on."""
    seen = context.facts.first("nccl.complete")
    return seen.evidence if seen and context.facts.transports else None


@cause("ofi-plugin-missing")
def plugin(context: Context) -> Iterator[Finding]:
    """aws-ofi-nccl is not loaded on a fabric that needs it."""
    facts = context.facts
    needs = _provider(context) in ("efa", "cxi") or bool(_instance_type(context))
    if (
        not needs
        or facts.first("ofi.init")
        or facts.first("ofi.provider")
        or facts.first("ofi.loaded")
    ):
        return
    missing = facts.first("nccl.no-plugin") or facts.first("nccl.plugin-failed")
    whole = _complete(context)
    if missing and _across_nodes(context):
        yield Finding(
            "ofi-plugin-missing",
            "certain",
            (missing.evidence,),
            "NCCL found no network plugin",
            effect=Verdict.DEGRADED,
        )
    elif whole and _across_nodes(context):
        yield Finding(
            "ofi-plugin-missing",
            "likely",
            (whole,),
            "the log is complete and has no line of NET/OFI",
            effect=Verdict.DEGRADED,
        )


@cause("ofi-topology-file-missing")
def topology_file(context: Context) -> Iterator[Finding]:
    """The plugin does not use the topology file of its instance type."""
    facts = context.facts
    instance = _instance(context)
    if not instance or not instance.topology_file:
        return
    needed = instance.topology_file
    for seen in facts.seen("ofi.topology"):
        name = seen["file"].rsplit("/", 1)[-1]
        if name.endswith("-topo.xml") and name != needed:
            yield Finding(
                "ofi-topology-file-missing",
                "certain",
                (seen.evidence,),
                f"{name} is in use, {_instance_type(context)} has {needed}",
                effect=Verdict.DEGRADED,
            )
        return
    setting = facts.setting("NCCL_TOPO_FILE")
    if setting and (setting.value.endswith(needed) or setting.value.startswith("/proc/self/fd/")):
        return
    whole = _complete(context)
    started = facts.first("ofi.init") or facts.first("ofi.provider")
    if whole and started and _across_nodes(context):
        yield Finding(
            "ofi-topology-file-missing",
            "likely",
            (started.evidence, whole),
            f"the log is complete and does not name {needed}",
            effect=Verdict.DEGRADED,
        )


def shown(context: Context) -> dict[str, Evidence | None]:
    """Return the facts that the published validation of an EFA run looks for, with their lines."""
    facts = context.facts
    network = next((w for w in facts.transports if w.endswith("/GDRDMA")), None)

    def line(*kinds: str) -> Evidence | None:
        return next((s.evidence for k in kinds if (s := facts.first(k))), None)

    return {
        "plugin initialised": line("ofi.init"),
        "AWS options": line("ofi.aws-options"),
        "provider and NICs": line("ofi.provider"),
        "network": line("nccl.network", "ofi.process"),
        "GPUDirect": facts.transport_lines[network] if network else line("ofi.gdr-on"),
        "topology file": line("ofi.topology"),
        "CUDA runtime": line("ofi.cuda-runtime"),
        "NCCL version": line("nccl.version"),
    }


@cause("ofi-aws-options-missing")
def aws_options(context: Context) -> Iterator[Finding]:
    """The plugin runs on an EFA instance without the options for AWS."""
    facts = context.facts
    started, whole = facts.first("ofi.init"), _complete(context)
    on_efa = _provider(context) == "efa" or _instance(context) is not None
    if not (on_efa and started and whole and _across_nodes(context)):
        return
    if facts.first("ofi.aws-options"):
        return
    yield Finding(
        "ofi-aws-options-missing",
        "likely",
        (started.evidence, whole),
        "the log is complete and the plugin does not set the options for AWS",
        effect=Verdict.DEGRADED,
    )
