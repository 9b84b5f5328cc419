# SPDX-License-Identifier: MIT
"""Causes in libfabric and the network plugin aws-ofi-nccl, most of them on EFA."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.reading import Evidence
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Explains, Finding, degraded
from busbar.explain.rules_fabric import across_nodes, instance_of, instance_type, provider_of
from busbar.verdict import Verdict

_SLOW_PROVIDERS = frozenset({"tcp", "sockets", "udp", "net", "shm"})


@cause("ofi-provider-wrong", fatal=True)
def provider(context: Context) -> Iterator[Finding]:
    """libfabric uses another provider than the fabric needs."""
    facts = context.facts
    needed = provider_of(context)
    on_aws = bool(instance_type(context) or facts.first("ofi.aws-options"))
    if needed not in ("efa", "cxi", "verbs", "psm3", "opx"):
        needed = "efa" if on_aws else None
    for seen in facts.seen("ofi.provider"):
        name = seen["provider"].split(";")[0]
        if (needed and name != needed) or (not needed and name in _SLOW_PROVIDERS):
            yield degraded(
                "ofi-provider-wrong",
                (seen.evidence,),
                f"provider {seen['provider']}"
                + (f", the fabric needs {needed}" if needed else ""),
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
    needs = provider_of(context) in ("efa", "cxi") or bool(instance_type(context))
    # Any line of the plugin shows that it is loaded: posts leave its first ones out.
    if not needs or any(kind.startswith("ofi.") for kind in facts.messages):
        return
    missing = facts.first("nccl.no-plugin") or facts.first("nccl.plugin-failed")
    whole = _complete(context)
    if missing and across_nodes(context):
        yield degraded("ofi-plugin-missing", (missing.evidence,), "NCCL found no network plugin")
    elif whole and across_nodes(context):
        yield degraded(
            "ofi-plugin-missing",
            (whole,),
            "the log is complete and has no line of NET/OFI",
            "likely",
        )


@cause("ofi-topology-file-missing")
def topology_file(context: Context) -> Iterator[Finding]:
    """The plugin does not use the topology file of its instance type."""
    facts = context.facts
    instance = instance_of(context)
    if not instance or not instance.topology_file:
        return
    needed = instance.topology_file
    for seen in facts.seen("ofi.topology"):
        name = seen["file"].rsplit("/", 1)[-1]
        if name.endswith("-topo.xml") and name != needed:
            yield degraded(
                "ofi-topology-file-missing",
                (seen.evidence,),
                f"{name} is in use, {instance_type(context)} has {needed}",
            )
        return
    setting = facts.setting("NCCL_TOPO_FILE")
    if setting and (setting.value.endswith(needed) or setting.value.startswith("/proc/self/fd/")):
        return
    whole = _complete(context)
    started = facts.first("ofi.init") or facts.first("ofi.provider")
    if whole and started and across_nodes(context):
        yield degraded(
            "ofi-topology-file-missing",
            (started.evidence, whole),
            f"the log is complete and does not name {needed}",
            "likely",
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
    on_efa = provider_of(context) == "efa" or instance_of(context) is not None
    if not (on_efa and started and whole and across_nodes(context)):
        return
    if facts.first("ofi.aws-options"):
        return
    yield degraded(
        "ofi-aws-options-missing",
        (started.evidence, whole),
        "the log is complete and the plugin does not set the options for AWS",
        "likely",
    )
