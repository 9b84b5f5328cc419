# SPDX-License-Identifier: MIT
"""Causes in the network between nodes: sockets, GPUDirect, rails, NICs, and libfabric on EFA."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from busbar.engine.identify import gpu_models
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.explain.catalog import cause
from busbar.explain.rails import crossings
from busbar.explain.rules import Context, Explains, Finding, degraded, failure, finding
from busbar.parse import nccl_log, numbers
from busbar.site.family import Instance
from busbar.site.load import family_named
from busbar.verdict import Verdict
from busbar.words import counted

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
    """Return whether the run uses several nodes, even if the log comes from one rank."""
    facts = context.facts
    if across_nodes(context):
        return True
    ranks = max(map(numbers.count, facts.values("nccl.init", "ranks")), default=0)
    return ranks > _MOST_GPUS and len(facts.hosts) <= 1 and len(facts.processes) < ranks


def _staging_costs(context: Context) -> bool:
    """Return whether the rates leave room for a direct path: they do not belong to the NICs."""
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


def _connections(facts: JobOutput, ways: Collection[str]) -> int:
    """Count the connections over such transports; each end may print a line."""
    return len({path.connection for path in facts.paths if path.way in ways})


_CONTAINER = re.compile(r"\b(?:apptainer|singularity|docker|podman|enroot)\b|--container-image")

_NO_NETWORK = "nccl.ib-failed", "nccl.no-verbs", "nccl.ib-none", "nccl.socket", "nccl.no-plugin"


@cause("nccl-socket-fallback")
def socket_fallback(context: Context) -> Finding | None:
    """Connections use NET/Socket, or it is the only network between nodes."""
    facts = context.facts
    if provider_of(context) in ("tcp", "sockets"):
        return None
    if missing := facts.first("nccl.net-missing"):
        return failure("NCCL found no InfiniBand device", missing)
    used = [way for way in facts.transports if way.startswith("NET/Socket")]
    networks = facts.seen("nccl.network")
    sockets = [s for s in networks if s["name"] == "Socket"]
    if not used and not (sockets and (spans_nodes(context) or facts.first("nccl.ib-failed"))):
        return None
    names = ("NCCL_SHM_DISABLE", "NCCL_NET", "NCCL_IB_DISABLE")
    settings = [s for s in map(facts.setting, names) if s and s.value != "0"]
    lines = [facts.transport_lines[way] for way in used] or [sockets[0].evidence]
    failed, no_verbs, none, taken, no_plugin = map(facts.first, _NO_NETWORK)
    what = f"NCCL runs over TCP ({taken['interface']})" if taken else "NCCL runs over TCP"
    mixed = [s for s in networks if s["name"] != "Socket"] if sockets else []
    place = nccl_log.PROCESS.search(sockets[0].evidence.text.encode()) if mixed else None
    if place:
        what += f" on {place['host'].decode()}, {mixed[0]['name']} on other ranks"
    if count := _connections(facts, used):
        what += f", {counted(count, 'connection')}"
    if not settings and (none or no_verbs) and not failed:
        what += ": it found no " + ("RDMA device" if none else "libibverbs")
    images = [line for _, line in facts.commands if _CONTAINER.search(line.text)][:1]
    return degraded(what, *settings, failed, no_verbs, none, no_plugin, *images, *lines)


@cause("gdr-off")
def gdr_off(context: Context) -> Finding | None:
    """Network connections do not use GPUDirect, or NCCL or the plugin reports it off."""
    facts = context.facts
    expected = _gdr_expected(context)
    if not spans_nodes(context) or expected is False:
        return None
    if expected is None and not _staging_costs(context):
        return None
    network = [w for w in facts.transports if w.startswith("NET/") and "Socket" not in w]
    plain = [w for w in network if not w.endswith("/GDRDMA")]
    direct = _connections(facts, {*network} - {*plain})
    staged = _connections(facts, plain)
    refused = facts.seen("ofi.gdr-off")
    adapters = [s for s in facts.seen("nccl.gdr-hca") if s["network"] != "Socket"]
    states = [*adapters, *facts.seen("nccl.gdr-gpu")]
    disabled = [s for s in states if s["state"] == "Disabled"]
    lines = [facts.transport_lines[w] for w in plain]
    if (direct and not staged) or not (refused or lines or disabled):
        return None
    level = facts.setting("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ")
    shown = bool(staged or refused or (disabled and not direct))
    summary = f"{staged} connections between nodes without GPUDirect, {direct} with it"
    return finding(
        summary if network else "GPUDirect is off",
        *(level, *refused[:1], *lines[:2], *disabled[:2]),
        certain=shown and not direct,
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
def rails(context: Context) -> Finding | None:
    """Ring neighbours use NICs of different rails."""
    if not _on_rails(context):
        return None
    crossed = [c for c in crossings(context.facts, context.node) if c.same_rail is False]
    if not crossed:
        return None
    pairs, nics = [c.pair for c in crossed], sorted({c.nics for c in crossed})
    summary = f"pairs {', '.join(pairs)} cross rails over {', '.join(nics)}"
    lines = dict.fromkeys(c.evidence for c in crossed)
    return finding(summary, *[*lines][:4], pairs=pairs, nics=nics)


@cause("ecmp-collision")
def ecmp(context: Context) -> Iterator[Finding]:
    """A rate between nodes falls as messages grow."""
    for dip in context.dips[:1] if across_nodes(context) else ():
        yield degraded(dip.text, dip.peak, dip.last, certain=False)


@cause("nic-count-short")
def nic_count(context: Context) -> Finding | None:
    """Fewer NICs are in use than the instance or the site has."""
    facts, instance = context.facts, instance_of(context)
    expected = (context.node.nic_count if context.node else 0) or (
        instance.nics if instance else 0
    )
    if not expected:
        return None
    for seen in facts.seen("ofi.provider"):
        if seen["nics"] and numbers.count(seen["nics"]) < expected:
            owner = instance_type(context) or "a node of the site"
            return degraded(f"{seen['nics']} NICs found, {owner} has {expected}", seen)
    for seen in facts.seen("nccl.ib-devices"):
        used = len(re.findall(r"\[\d+\]", seen["devices"]))
        if used < expected and across_nodes(context):
            return degraded(f"{counted(used, 'NIC')} in use, a node has {expected}", seen)
    return None


# ---- libfabric and the network plugin aws-ofi-nccl, most of it on EFA
_SLOW_PROVIDERS = frozenset({"tcp", "sockets", "udp", "net", "shm"})


@cause("ofi-provider-wrong", fatal=True)
def provider(context: Context) -> Finding | None:
    """libfabric uses another provider than the fabric needs."""
    facts = context.facts
    needed = provider_of(context)
    on_aws = bool(instance_type(context) or facts.first("ofi.aws-options"))
    if needed not in ("efa", "cxi", "verbs", "psm3", "opx"):
        needed = "efa" if on_aws else None
    for seen in facts.seen("ofi.provider"):
        name = seen["provider"].split(";")[0]
        if (needed and name != needed) or (not needed and name in _SLOW_PROVIDERS):
            but = f", the fabric needs {needed}" if needed else ""
            return degraded(f"provider {seen['provider']}{but}", seen)
    refused = facts.first("ofi.no-provider")
    if refused and not facts.first("ofi.provider"):
        return failure(refused["text"], refused, effect=Verdict.DEGRADED, certain=False)
    return None


def _complete(context: Context) -> Evidence | None:
    """Return the line that shows that NCCL's log is complete from initialisation on."""
    seen = context.facts.first("nccl.complete")
    return seen.evidence if seen and context.facts.transports else None


@cause("ofi-plugin-missing")
def plugin(context: Context) -> Finding | None:
    """aws-ofi-nccl is not loaded on a fabric that needs it."""
    facts = context.facts
    needs = provider_of(context) in ("efa", "cxi") or bool(instance_type(context))
    # Any line of the plugin shows that it is loaded: posts leave its first ones out.
    loaded = any(kind.startswith("ofi.") for kind in facts.messages)
    if not needs or loaded or not across_nodes(context):
        return None
    if missing := facts.first("nccl.no-plugin") or facts.first("nccl.plugin-failed"):
        return degraded("NCCL found no network plugin", missing)
    if whole := _complete(context):
        return degraded("the log is complete but has no NET/OFI line", whole, certain=False)
    return None


@cause("ofi-tree-stalled", fatal=True, hides=["timeout"])
def tree_stalled(context: Context) -> Finding | None:
    """A run over the plugin ended after ranks connected all rings, and no rank all trees."""
    facts = context.facts
    connected = {seen["shape"]: seen for seen in facts.seen("nccl.connected")}
    over_plugin = any("Libfabric" in way for way in facts.transports)
    if facts.readings or _complete(context) or [*connected] != ["rings"] or not over_plugin:
        return None
    summary = "all rings are connected, but no rank has connected its trees"
    return finding(summary, connected["rings"], certain=False, explains=Explains.FAILURE)


@cause("ofi-topology-file-missing")
def topology_file(context: Context) -> Finding | None:
    """The plugin does not use the topology file of its instance type."""
    facts = context.facts
    instance = instance_of(context)
    if not instance or not instance.topology_file:
        return None
    needed = instance.topology_file
    if seen := facts.first("ofi.topology"):
        name = seen["file"].rsplit("/", 1)[-1]
        if name.endswith("-topo.xml") and name != needed:
            return degraded(f"{name} is in use, {instance_type(context)} has {needed}", seen)
        return None
    setting = facts.setting("NCCL_TOPO_FILE")
    if setting and (setting.value.endswith(needed) or setting.value.startswith("/proc/self/fd/")):
        return None
    whole = _complete(context)
    started = facts.first("ofi.init") or facts.first("ofi.provider")
    if whole and started and across_nodes(context):
        summary = f"the log is complete but does not name {needed}"
        return degraded(summary, started, whole, certain=False)
    return None


@cause("ofi-aws-options-missing")
def aws_options(context: Context) -> Finding | None:
    """The plugin runs on an EFA instance without the options for AWS."""
    facts = context.facts
    started, whole = facts.first("ofi.init"), _complete(context)
    on_efa = provider_of(context) == "efa" or instance_of(context) is not None
    if not (on_efa and started and whole and across_nodes(context)):
        return None
    if facts.first("ofi.aws-options"):
        return None
    summary = "the log is complete, but the plugin does not set the AWS options"
    return degraded(summary, started, whole, certain=False)
