# SPDX-License-Identifier: MIT
"""Compose a site from the output of a machine's tools, and match it with the known sites."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from busbar.detect import amd, nvidia
from busbar.detect.cluster import Cluster, DetectedScheduler, Group, cluster_of, scheduler
from busbar.detect.compare import MARKS, differences
from busbar.detect.detected import NAME, Detected, DetectedGpus, remark
from busbar.detect.gather import Outputs, Software, gather
from busbar.detect.nics import FABRICS, nics
from busbar.detect.pcie import pcie
from busbar.detect.reader import VENDOR_TOOLS, Reader, recorded
from busbar.errors import BusbarError
from busbar.parse.cpulist import cpu_list
from busbar.parse.machine import amd_smi, amd_text, hwloc, nvidia_smi, rocm_smi
from busbar.site.delivery import Stack
from busbar.site.load import family_names, link_classes_of, load, names, ships
from busbar.site.model import Gpus, Nic, NodeType, Numa, Site
from busbar.site.plain import explained
from busbar.site.yamlfile import dotted
from busbar.slurm.hostlist import fold
from busbar.terminal import stderr

__all__ = ["compose", "detect", "detect_cluster", "match", "recorded"]
_LANES = ["ucx-1.14", "ucx-current"]


@dataclass(frozen=True)
class _Machine:
    """One machine as its tools describe it."""

    reader: Reader
    facts: dict[str, Any]
    """The keys of its node type."""
    gpus: DetectedGpus | None
    queue: DetectedScheduler

    @property
    def stack(self) -> Stack:
        return self.gpus.stack if self.gpus and self.gpus.facts else "host"


def detect() -> Detected:
    """Detect the site of this machine."""
    return compose(gather())


def detect_cluster() -> Detected:
    """Detect the site of this machine's Slurm cluster, or of this machine."""
    outputs = gather()
    cluster = cluster_of(outputs)
    return compose_cluster(cluster, outputs.host) if cluster else compose(outputs)


def compose(outputs: Outputs) -> Detected:
    """Compose the site that the outputs describe."""
    machine = _machine(outputs)
    partition: dict[str, Any] = {
        "name": machine.queue.partition,
        "node_type": "node",
        "launcher": machine.queue.launcher,
        "access": list(machine.queue.access),
    }
    if "nics" in machine.facts:
        partition["nodes"] = machine.queue.nodes
    elif machine.queue.nodes > 1:
        queue = machine.queue
        machine.reader.remarks.append(
            remark("no-nic", scheduler=queue.scheduler, nodes=queue.nodes)
        )
    types = {"node": machine.facts}
    return _detected(machine, [partition | _features(machine)], types, machine.queue.scheduler)


def compose_cluster(cluster: Cluster, host: str) -> Detected:
    """Compose the site of a cluster; the kinds of nodes are named as their partitions."""
    machines = {
        group.queue: _machine(cluster.described.get(group.queue, Outputs(host=host)))
        for group in cluster.groups
    }
    main = next((m for m in machines.values() if m.gpus), next(iter(machines.values())))
    family = deliveries(main.reader.outputs.software, "host")[0].get("mpi", "openmpi")
    remarks: list[str] = list(cluster.remarks)
    partitions: list[dict[str, Any]] = []
    types: dict[str, dict[str, Any]] = {}
    for group in cluster.groups:
        machine = machines[group.queue]
        facts = machine.facts | _of_slurm(machine.reader, group)
        kind = next((name for name, known in types.items() if known == facts), group.name)
        types[kind] = facts
        partition = {
            "name": group.name,
            "node_type": kind,
            "launcher": cluster.launcher(family),
            "access": list(group.access),
            "nodes": len(group.nodes),
        }
        if len(cluster.groups) > 1:
            partition["nodelist"] = fold(node.name for node in group.nodes)
        partitions.append(partition | _features(machine))
        count = group.nodes[0].gpu_count
        if count and "gpus" not in machine.facts:
            remarks.append(remark("gpus-of-slurm", count=count, queue=group.queue))
    if "nics" not in main.facts and max(partition["nodes"] for partition in partitions) > 1:
        remarks.append(remark("no-network"))
    for machine in machines.values():
        remarks += [each for each in machine.reader.remarks if each not in remarks]
    detected = _detected(main, partitions, types, "slurm", *machines.values())
    about = f"{detected.site.description}, {sum(p['nodes'] for p in partitions)} nodes"
    return replace(
        detected,
        site=detected.site.model_copy(update={"description": about}),
        remarks=tuple(remarks),
    )


def _of_slurm(reader: Reader, group: Group) -> dict[str, Any]:
    """Return what Slurm knows of the hardware: a job has these CPUs."""
    node = group.nodes[0]
    facts = {
        "cores": node.cpus,
        "sockets": node.sockets,
        "threads_per_core": node.threads_per_core,
    }
    facts = {key: value for key, value in facts.items() if value}
    return facts if reader.is_valid(NodeType, facts, f"the nodes of {group.queue}") else {}


def _features(machine: _Machine) -> dict[str, list[str]]:
    """Return the features that the network gives to a partition."""
    kinds = [str(nic["class"]).split("-")[0] for nic in machine.facts.get("nics", ())]
    features = [each for kind in kinds if (each := FABRICS.get(kind, {}).get("feature"))]
    return {"features": list(dict.fromkeys(features))} if features else {}


def _machine(outputs: Outputs) -> _Machine:
    """Describe one machine."""
    reader = Reader(outputs)
    for name, message in outputs.failed.items():
        reader.remark(name, f"{name} failed: {message}")
    reader.remarks += outputs.unseen_gpus
    reader.failed_gpu_tools += outputs.unseen_gpus
    topology = reader.read("nvidia-smi topo", nvidia_smi.parse_topology)
    gpus = _gpus(reader, topology)
    facts: dict[str, Any] = {}
    if gpus:
        reader.remarks += gpus.remarks
        if not gpus.facts:
            reader.failed_gpu_tools += gpus.remarks
        elif reader.is_valid(Gpus, gpus.facts, "the GPUs"):
            facts["gpus"] = gpus.facts
        else:
            reader.failed_gpu_tools.append(reader.remarks[-1])
            gpus = None
    elif outputs.recorded and not any(name.startswith(VENDOR_TOOLS) for name in outputs.text):
        reader.remark(VENDOR_TOOLS[0], "GPUs are unknown: no output of a GPU tool was given")
    ports = nics(reader, topology, facts.get("gpus", {}), link_classes_of())
    ports = [port for port in ports if reader.is_valid(Nic, port, "a NIC")]
    facts |= {"nics": ports} if ports else {}
    machine = reader.read("lstopo", hwloc.parse_machine) or reader.read(
        "lstopo-no-graphics", hwloc.parse_machine
    )
    numa = [n for n in _numa(machine, gpus) if reader.is_valid(Numa, n, "a NUMA domain")]
    if found := pcie(reader, topology, facts, machine):
        facts["pcie"] = found
    queue = scheduler(reader)
    cores = _cores(outputs, machine, gpus, queue)
    facts |= {"numa": numa} if numa else {}
    facts |= {"cores": cores} if cores else {}
    facts |= {"instance_type": outputs.instance_type} if outputs.instance_type else {}
    return _Machine(reader, facts, gpus, queue)


def _detected(
    machine: _Machine,
    partitions: list[dict[str, Any]],
    types: dict[str, dict[str, Any]],
    scheduler_name: str,
    *others: _Machine,
) -> Detected:
    """Return the site; settings that all nodes share come from one machine.

    ``others`` may have other GPUs, or none, and need deliveries for these.
    """
    reader, gpus, facts = machine.reader, machine.gpus, machine.facts
    try:
        site = Site.model_validate(
            _site(machine, *others)
            | {"scheduler": scheduler_name, "partitions": partitions, "node_types": types}
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = f"the detected site: {dotted(first['loc'])}"
        hint = "check the outputs of the tools; files for --from must all be from one machine"
        raise BusbarError(explained(Site, first)[0], where=where, hint=hint) from error
    return Detected(
        site,
        tuple(reader.remarks),
        gpus.remarks if gpus else (),
        reader.outputs.rdma_listed or "nics" in facts,
        () if "gpus" in facts else tuple(reader.failed_gpu_tools),
    )


def _gpus(reader: Reader, topology: nvidia_smi.Topology | None) -> DetectedGpus | None:
    """Return the GPUs by the tools of the vendor that answer."""
    classes = link_classes_of()
    outputs = nvidia.NvidiaOutputs(
        topology,
        reader.read("nvidia-smi -q", nvidia_smi.parse_inventory),
        reader.read("nvidia-smi nvlink", nvidia_smi.parse_nvlink),
        reader.read("nvidia-smi compute_cap", nvidia_smi.parse_compute_capability),
        reader.outputs.multicast,
        reader.outputs.nvls_off,
        reader.read("nvidia-smi -L", nvidia_smi.parse_list),
        reader.read("nvidia-smi mig.mode", nvidia_smi.parse_mig_mode),
    )
    return nvidia.gpus(outputs, classes) or amd.gpus(
        reader.read("amd-smi topology", amd_smi.parse_topology)
        or reader.read("amd-smi topology (text)", amd_text.parse_topology),
        reader.read("amd-smi static", amd_smi.parse_static)
        or reader.read("amd-smi static (text)", amd_text.parse_static),
        reader.read("rocm-smi", rocm_smi.parse_topology),
        classes,
    )


def match(detected: Detected | None = None) -> str | None:
    """Return the site with the hardware of this machine; ``local`` for a machine without GPUs.

    Return None if no site matches, or if there are GPUs that no installed tool can describe. Only
    GPUs, their links, NICs and the cloud's instance type are compared. Sites of
    ``BUSBAR_SITE_PATH`` take precedence over shipped ones. A site that cannot be read is skipped
    with a message on standard error.
    """
    detected = detected or detect()
    if detected.gpu_tool_failed:
        return None
    if detected.site.node_type().gpus is None:
        return "local"
    matching = []
    for name in names():
        try:
            site = load(name)
        except BusbarError as error:
            stderr().line(f"busbar: skipping site {name!r}: {error}")
            continue
        if site.node_type().gpus is None:
            continue
        for partition in site.partitions:
            different = differences(detected, site, partition.name)
            if not any(difference.key.startswith(MARKS) for difference in different):
                matching.append((ships(site), len(different), name))
    return min(matching)[-1] if matching else None


def _site(machine: _Machine, *others: _Machine) -> dict[str, Any]:
    """Return the keys of `site.yaml` that all partitions share."""
    outputs, node, gpus = machine.reader.outputs, machine.facts, machine.gpus
    count = node.get("gpus", {}).get("count", 0)
    stacks = dict.fromkeys(each.stack for each in (machine, *others))
    about = f"{count} x {node['gpus']['model']}" if count else "no GPUs"
    site: dict[str, Any] = {
        "name": NAME,
        "description": f"Detected on {outputs.host or 'a recorded machine'}: {about}",
        "family": _family(node, gpus),
        "deliveries": [d for stack in stacks for d in deliveries(outputs.software, stack)],
    }
    if ports := node.get("nics", ()):
        rails = sum(port.get("count", 1) for port in ports)
        kind = str(ports[0]["class"]).split("-")[0]
        site["fabric"] = {"provider": FABRICS[kind]["provider"], "rails": rails}
    return site


def _family(node: dict[str, Any], gpus: DetectedGpus | None) -> str:
    """Return the family for this hardware; ``generic`` if it is unknown."""
    if not gpus:
        return "generic"
    kinds = {str(nic["class"]).split("-")[0] for nic in node.get("nics", ())}
    kinds |= {"efa"} if node.get("instance_type") else set()
    known = [FABRICS.get(kind, {}).get("families", {}) for kind in kinds]
    likely = sorted(each[gpus.family] for each in known if gpus.family in each)
    return next((name for name in (*likely, gpus.family) if name in family_names()), "generic")


def _cores(
    outputs: Outputs,
    machine: hwloc.Machine | None,
    gpus: DetectedGpus | None,
    queue: DetectedScheduler,
) -> int | None:
    """Count the logical CPUs that this process may use, or that a tool reports."""
    if outputs.cpus:
        return len(outputs.cpus)
    if queue.cpus:
        return queue.cpus
    if machine:
        return len(machine.cpus)
    cpus = {cpu for domain in (gpus.numa if gpus else ()) for cpu in domain.cpus}
    return len(cpus) or None


def _numa(machine: hwloc.Machine | None, gpus: DetectedGpus | None) -> list[dict[str, Any]]:
    domains = gpus.numa if gpus else ()
    near = {domain.id: domain.gpus for domain in domains}
    cpus = {domain.id: domain.cpus for domain in domains}
    if machine:
        cpus |= {node.index: node.cpus for node in machine.numa if node.cpus}
    return [
        {"id": index, "cpus": cpu_list(listed)}
        | ({"gpus": list(near[index])} if near.get(index) else {})
        for index, listed in sorted(cpus.items())
        if listed
    ]


def deliveries(software: Software, stack: Stack) -> list[dict[str, Any]]:
    """Return the deliveries of a site: those that are installed, then the default of the stack.

    The wheels come with Busbar; for AMD GPUs, Spack builds what no wheel has.
    """
    listed: list[dict[str, Any]] = []
    own = [{"kind": "spack" if stack == "rocm" else "wheels", "stack": stack, "lanes": _LANES}]
    features = list(software.features)
    if software.spack_view and own[0]["kind"] != "spack":
        listed.append({"kind": "spack", "stack": stack, "lanes": _LANES, "features": features})
    if software.cray_mpich:
        of_cray: Stack = "host" if stack == "host" else "cray"
        listed.append(_modules(of_cray, "cray-mpich", features))
    elif software.modules and software.mpi:
        listed.append(_modules(stack, software.mpi, features))
    return [*listed, *own]


def _modules(stack: Stack, mpi: str, features: list[str]) -> dict[str, Any]:
    return {"kind": "modules", "stack": stack, "lanes": [mpi], "mpi": mpi, "features": features}
