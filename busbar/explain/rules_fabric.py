# SPDX-License-Identifier: MIT
"""Causes in the network between nodes: sockets, GPUDirect, rails, EFA and libfabric."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.explain.rails import crossings
from busbar.explain.rules import Context, Explains, Finding, Rule
from busbar.output.reading import Evidence
from busbar.verdict import Verdict

_FALL = 0.85
"""A busbw this far below its peak at larger sizes is a fall: repeated runs differ by a few
percent."""
_FALL_FROM = 1 << 24
_SLOW_PROVIDERS = frozenset({"tcp", "sockets", "udp", "net", "shm"})
# Instance type: NICs, and the topology file that the plugin or the user sets. Sources: AWS
# instance
# types documentation; aws-ofi-nccl's platform table (p5 and later write a topology file at run
# time).
_INSTANCES = {
    "p3dn.24xlarge": (1, None, False),
    "p4d.24xlarge": (4, "p4d-24xl-topo.xml", True),
    "p4de.24xlarge": (4, "p4de-24xl-topo.xml", True),
    "p5.48xlarge": (32, "p5.48xl-topo.xml", True),
    "p5e.48xlarge": (32, None, True),
    "p5en.48xlarge": (16, None, True),
}


def _across_nodes(context: Context) -> bool:
    return (
        bool(context.nodes and context.nodes > 1) or context.facts.tool == "nccl_message_transfer"
    )


def _instance(context: Context) -> str | None:
    if context.node and context.node.instance_type:
        return context.node.instance_type
    for seen in context.facts.seen("ofi.topology"):
        if seen["instance"] in _INSTANCES:
            return seen["instance"]
    return None


def _provider(context: Context) -> str | None:
    return context.site.fabric.provider if context.site and context.site.fabric else None


def socket_fallback(context: Context) -> Iterator[Finding]:
    """Connections over NET/Socket, or between nodes no other network."""
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


def gdr_off(context: Context) -> Iterator[Finding]:
    """Network connections without GPUDirect, or NICs for which NCCL or the plugin says that it
    is off."""
    facts = context.facts
    if not _across_nodes(context):
        return
    expected = _gdr_expected(context)
    if expected is False:
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
    return _INSTANCES[instance][2] if instance in _INSTANCES else None


_WITHOUT_RAILS = frozenset({"efa", "cxi", "tcp", "sockets"})
"""Fabrics that spread the packets of any pair over all paths, or have one network."""


def _on_rails(context: Context) -> bool:
    """Whether the traffic between nodes goes over NICs whose switches matter."""
    if _provider(context) in _WITHOUT_RAILS or _instance(context) in _INSTANCES:
        return False
    facts = context.facts
    networks = {way.split("/")[1] for way in facts.transports if way.startswith("NET/")}
    networks = networks or set(facts.values("nccl.network", "name"))
    return not networks or any(n != "Socket" and "Libfabric" not in n for n in networks)


def rails(context: Context) -> Iterator[Finding]:
    """Ring neighbours on NICs of different rails."""
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


def ecmp(context: Context) -> Iterator[Finding]:
    """A rate between nodes that falls as messages grow."""
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
    """Peak and last value of a curve that falls after its peak, with their rows."""
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


def nic_count(context: Context) -> Iterator[Finding]:
    """Fewer NICs found than the instance or the site has."""
    facts = context.facts
    expected = context.node.nic_count if context.node else None
    instance = _instance(context)
    if not expected and instance in _INSTANCES:
        expected = _INSTANCES[instance][0]
    if not expected:
        return
    for seen in facts.seen("ofi.provider"):
        if seen["nics"] and int(seen["nics"]) < expected:
            yield Finding(
                "nic-count-short",
                "certain",
                (seen.evidence,),
                f"{seen['nics']} NICs found, {instance or 'a node of the site'} has {expected}",
                effect=Verdict.DEGRADED,
            )
            return
    for seen in facts.seen("nccl.ib-devices"):
        found = len(re.findall(r"\[\d+\]", seen["devices"]))
        if found < expected and (_across_nodes(context)):
            yield Finding(
                "nic-count-short",
                "certain",
                (seen.evidence,),
                f"{found} NICs in use, a node has {expected}",
                effect=Verdict.DEGRADED,
            )
            return


def provider(context: Context) -> Iterator[Finding]:
    """A libfabric provider that is not the fabric's."""
    facts = context.facts
    wanted = _provider(context)
    on_aws = bool(_instance(context) or facts.first("ofi.aws-options"))
    if wanted not in ("efa", "cxi", "verbs", "psm3", "opx"):
        wanted = "efa" if on_aws else None
    for seen in facts.seen("ofi.provider"):
        name = seen["provider"].split(";")[0]
        if (wanted and name != wanted) or (not wanted and name in _SLOW_PROVIDERS):
            yield Finding(
                "ofi-provider-wrong",
                "certain",
                (seen.evidence,),
                f"provider {seen['provider']}"
                + (f", the fabric needs {wanted}" if wanted else ""),
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
    """The line that shows that NCCL's log is whole from initialisation on."""
    seen = context.facts.first("nccl.complete")
    return seen.evidence if seen and context.facts.transports else None


def plugin(context: Context) -> Iterator[Finding]:
    """No aws-ofi-nccl on a fabric that needs it."""
    facts = context.facts
    needs = _provider(context) in ("efa", "cxi") or bool(_instance(context))
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
            "the log is whole and has no line of NET/OFI",
            effect=Verdict.DEGRADED,
        )


def topology_file(context: Context) -> Iterator[Finding]:
    """The plugin runs without the topology file of its instance type, or with another one's."""
    facts = context.facts
    instance = _instance(context)
    wanted = _INSTANCES[instance][1] if instance in _INSTANCES else None
    if not wanted:
        return
    for seen in facts.seen("ofi.topology"):
        name = seen["file"].rsplit("/", 1)[-1]
        if name.endswith("-topo.xml") and name != wanted:
            yield Finding(
                "ofi-topology-file-missing",
                "certain",
                (seen.evidence,),
                f"{name} is in use, {instance} has {wanted}",
                effect=Verdict.DEGRADED,
            )
        return
    setting = facts.setting("NCCL_TOPO_FILE")
    if setting and (setting.value.endswith(wanted) or setting.value.startswith("/proc/self/fd/")):
        return
    whole = _complete(context)
    started = facts.first("ofi.init") or facts.first("ofi.provider")
    if whole and started and _across_nodes(context):
        yield Finding(
            "ofi-topology-file-missing",
            "likely",
            (started.evidence, whole),
            f"the log is whole and does not name {wanted}",
            effect=Verdict.DEGRADED,
        )


def shown(context: Context) -> dict[str, Evidence | None]:
    """What the published validation of an EFA run looks for, each with its line or None."""
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


def aws_options(context: Context) -> Iterator[Finding]:
    """The plugin starts on an EFA instance and never takes the options made for it."""
    facts = context.facts
    started, whole = facts.first("ofi.init"), _complete(context)
    on_efa = _provider(context) == "efa" or _instance(context) in _INSTANCES
    if not (on_efa and started and whole and _across_nodes(context)):
        return
    if facts.first("ofi.aws-options"):
        return
    yield Finding(
        "ofi-aws-options-missing",
        "likely",
        (started.evidence, whole),
        "the log is whole and the plugin configures no options of AWS",
        effect=Verdict.DEGRADED,
    )


RULES: tuple[Rule, ...] = (
    socket_fallback,
    plugin,
    aws_options,
    provider,
    nic_count,
    gdr_off,
    topology_file,
    rails,
    ecmp,
)
