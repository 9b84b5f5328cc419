# SPDX-License-Identifier: MIT
"""Makes a site of what a machine's tools print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from busbar.detect import amd as detect_amd
from busbar.detect import nvidia as detect_nvidia
from busbar.detect.compare import differences
from busbar.detect.detected import Detected, GpuFacts
from busbar.detect.gather import Outputs, gather
from busbar.errors import BusbarError
from busbar.parse.machine import amd_smi, fi_info, hwloc, ibstat, nvidia_smi, rocm_smi, scontrol
from busbar.site.cpulist import cpu_list
from busbar.site.load import load, names, ships
from busbar.site.model import Gpus, Name, Nic, Numa, Site
from busbar.site.yamlfile import dotted

Row = TypeVar("Row")
_PARSERS: dict[str, Callable[[str], object]] = {
    "nvidia-smi -q": nvidia_smi.parse_inventory,
    "nvidia-smi topo": nvidia_smi.parse_topology,
    "nvidia-smi nvlink": nvidia_smi.parse_nvlink,
    "rocm-smi": rocm_smi.parse_topology,
    "amd-smi static": amd_smi.parse_static,
    "amd-smi topology": amd_smi.parse_topology,
    "lstopo": hwloc.parse_machine,
    "ibstat": ibstat.parse_ibstat,
    "fi_info": fi_info.parse_fi_info,
    "scontrol": scontrol.parse_nodes,
}
_VENDOR_TOOLS = ("nvidia-smi", "amd-smi", "rocm-smi")
_NAME = "detected"
_IS_NAME: TypeAdapter[str] = TypeAdapter(Name)
_LIBFABRIC = {"efa": "efa-100g", "cxi": "slingshot-11"}


@dataclass
class _Reader:
    """Reads outputs with the parsers; what cannot be read becomes a remark, not an end."""

    outputs: Outputs
    remarks: list[str] = field(default_factory=list)
    failed_gpu_tools: list[str] = field(default_factory=list)
    """What tools of a GPU vendor said in place of an answer."""

    def remark(self, tool: str, text: str) -> None:
        self.remarks.append(text)
        if tool.startswith(_VENDOR_TOOLS):
            self.failed_gpu_tools.append(text)

    def read(self, name: str, parser: Callable[[str], Row]) -> Row | None:
        text = self.outputs.text.get(name)
        if text is None:
            return None
        try:
            return _parsed(parser, text)
        except ValueError as error:
            self.remark(name, f"{name}: {error}")
            return None


def recorded(files: Sequence[Path]) -> Outputs:
    """Outputs that were saved on some machine, each known by what it says, not by its name.

    Raises ``BusbarError`` for a file that cannot be read or that no parser knows.
    """
    text: dict[str, str] = {}
    for file in files:
        try:
            content = file.read_text(errors="replace")
        except OSError as error:
            raise BusbarError(f"cannot be read: {error.strerror}", where=str(file)) from error
        name = next((name for name, parser in _PARSERS.items() if _reads(parser, content)), None)
        if name is None:
            raise BusbarError(
                "is no output that detection knows",
                where=str(file),
                hint=f"give those of {', '.join(_PARSERS)}",
            )
        text[name] = content
    return Outputs(text)


def _parsed(parser: Callable[[str], Row], text: str) -> Row:
    """What the parser reads; ``ValueError`` for all that a damaged output can lead to."""
    try:
        return parser(text)
    except (AttributeError, LookupError, TypeError, OverflowError, RecursionError) as error:
        # JSON and XML keep their form when a value becomes one of another type.
        raise ValueError(f"the output is damaged: {error}") from error


def _reads(parser: Callable[[str], object], content: str) -> bool:
    try:
        _parsed(parser, content)
    except ValueError:
        return False
    return True


def detect() -> Detected:
    """The site of the machine that this runs on."""
    return compose(gather())


def compose(outputs: Outputs) -> Detected:
    """The site that the outputs describe; recorded ones serve as well as live ones."""
    reader = _Reader(outputs)
    for name, said in outputs.failed.items():
        reader.remark(name, f"{name} failed: {said}")
    topology = reader.read("nvidia-smi topo", nvidia_smi.parse_topology)
    found = detect_nvidia.gpus(
        topology,
        reader.read("nvidia-smi -q", nvidia_smi.parse_inventory),
        reader.read("nvidia-smi nvlink", nvidia_smi.parse_nvlink),
    ) or detect_amd.gpus(
        reader.read("amd-smi topology", amd_smi.parse_topology),
        reader.read("amd-smi static", amd_smi.parse_static),
        reader.read("rocm-smi", rocm_smi.parse_topology),
    )
    facts: dict[str, Any] = {}
    if found:
        reader.remarks += found.remarks
        if not found.facts:
            reader.failed_gpu_tools += found.remarks
        elif _fits(Gpus, found.facts, "the GPUs", reader):
            facts["gpus"] = found.facts
        else:
            reader.failed_gpu_tools.append(reader.remarks[-1])
            found = None
    nics = [nic for nic in _nics(reader, topology) if _fits(Nic, nic, "a NIC", reader)]
    machine = reader.read("lstopo", hwloc.parse_machine) or reader.read(
        "lstopo-no-graphics", hwloc.parse_machine
    )
    numa = [n for n in _numa(machine, found) if _fits(Numa, n, "a NUMA domain", reader)]
    nodes = reader.read("scontrol", scontrol.parse_nodes)
    cores = _cores(outputs, machine, found, nodes)
    facts |= {"nics": nics} if nics else {}
    facts |= {"numa": numa} if numa else {}
    facts |= {"cores": cores} if cores else {}
    facts |= {"instance_type": outputs.instance_type} if outputs.instance_type else {}
    site = Site.model_validate(_site(outputs, facts, found, nodes))
    return Detected(
        site,
        tuple(reader.remarks),
        outputs.rdma_seen or bool(nics),
        () if "gpus" in facts else tuple(reader.failed_gpu_tools),
    )


def _fits(model: type[BaseModel], facts: dict[str, Any], what: str, reader: _Reader) -> bool:
    """Whether the facts can be those of a site; where not, a remark says so."""
    try:
        model.model_validate(facts)
    except ValidationError as error:
        first = error.errors()[0]
        key = dotted(first["loc"])
        reader.remarks.append(
            f"{key} of {what} cannot be {str(first['input'])[:40]!r}, so it is not stated"
        )
        return False
    return True


def match(detected: Detected | None = None) -> str | None:
    """Return the name of the site whose hardware this is; ``local`` for a machine without GPUs.

    None if no site fits, or if a GPU vendor's tool reports no usable GPU. Only what marks a
    system counts: GPUs, their links, NICs, and the cloud's instance type. Sites of
    ``BUSBAR_SITE_PATH`` come before those that ship. A site that cannot be read is left out with
    a warning on standard error.
    """
    detected = detected or detect()
    if detected.gpu_tool_failed:
        return None
    if detected.site.node_type().gpus is None:
        return "local"
    fitting = []
    for name in names():
        try:
            known = load(name)
        except BusbarError as error:
            sys.stderr.write(f"busbar: site {name!r} is left out: {error}\n")
            continue
        if known.node_type().gpus is None:
            continue
        for partition in known.partitions:
            found = differences(detected, known, partition.name)
            if not any(difference.marks_the_system for difference in found):
                fitting.append((ships(known), len(found), name))
    return min(fitting)[-1] if fitting else None


def _site(
    outputs: Outputs,
    node: dict[str, Any],
    found: GpuFacts | None,
    nodes: tuple[scontrol.SlurmNode, ...] | None,
) -> dict[str, Any]:
    """The keys of `site.yaml` around one node type."""
    slurm = "scontrol" in outputs.text
    count = node.get("gpus", {}).get("count", 0)
    stack = "host" if not found or not found.facts else found.stack
    about = f"{count} x {node['gpus']['model']}" if count else "no GPUs"
    partition: dict[str, Any] = {
        "name": _partition_name(nodes),
        "node_type": "node",
        "launcher": "srun" if slurm else "mpirun",
    }
    family = _family(node, found)
    kind = "spack" if stack == "rocm" else "wheels"
    return {
        "name": _NAME,
        "description": f"Detected on {outputs.host or 'a recorded machine'}: {about}",
        "family": family,
        "scheduler": "slurm" if slurm else "local",
        "partitions": [partition],
        "node_types": {"node": node},
        "deliveries": [{"kind": kind, "stack": stack, "lanes": ["ucx-1.14", "ucx-current"]}],
    }


def _partition_name(nodes: tuple[scontrol.SlurmNode, ...] | None) -> str:
    """The scheduler's, where a site may call a partition so."""
    name = nodes[0].partitions[0].lower() if nodes and nodes[0].partitions else ""
    try:
        return _IS_NAME.validate_python(name)
    except ValidationError:
        return "node"


def _family(node: dict[str, Any], found: GpuFacts | None) -> str:
    """The family whose settings fit; ``generic`` where none is known."""
    nics = {nic["class"].split("-")[0] for nic in node.get("nics", ())}
    by_links = found.family if found else "generic"
    if "efa" in nics or node.get("instance_type"):
        return "efa" if found and found.stack == "cuda" else by_links
    if by_links == "nvlink4" and "roce" in nics:
        return "roce"
    if by_links == "mi250x" and "slingshot" in nics:
        return "slingshot"
    return by_links


def _cores(
    outputs: Outputs,
    machine: hwloc.Machine | None,
    found: GpuFacts | None,
    nodes: tuple[scontrol.SlurmNode, ...] | None,
) -> int | None:
    """Logical CPUs: those this process may use, else those a tool speaks of."""
    if outputs.cpus:
        return len(outputs.cpus)
    if nodes:
        return nodes[0].cpus
    if machine:
        return len(machine.cpus)
    cpus = {cpu for _, listed, _ in (found.numa if found else ()) for cpu in listed}
    return len(cpus) or None


def _numa(machine: hwloc.Machine | None, found: GpuFacts | None) -> list[dict[str, Any]]:
    near: dict[int, tuple[int, ...]] = {}
    cpus: dict[int, tuple[int, ...]] = {}
    for index, listed, gpus in found.numa if found else ():
        cpus[index], near[index] = listed, gpus
    if machine:
        cpus |= {node.index: node.cpus for node in machine.numa if node.cpus}
    return [
        {"id": index, "cpus": cpu_list(listed)}
        | ({"gpus": list(near[index])} if near.get(index) else {})
        for index, listed in sorted(cpus.items())
        if listed
    ]


def _nics(reader: _Reader, topology: nvidia_smi.Topology | None) -> list[dict[str, Any]]:
    """Ports with their class: from libfabric for EFA and Slingshot, else from ibstat or sysfs."""
    near = detect_nvidia.near_gpus(topology) if topology else {}
    ports = _libfabric(reader) or _verbs(reader)
    return [
        {"name": name, "class": link_class}
        | ({"near_gpus": list(near[name])} if near.get(name) else {})
        for name, link_class in ports
    ]


def _libfabric(reader: _Reader) -> list[tuple[str, str]]:
    endpoints = reader.read("fi_info", fi_info.parse_fi_info) or ()
    ports: dict[str, str] = {}
    for endpoint in endpoints:
        link_class = _LIBFABRIC.get(endpoint.provider.split(";")[0])
        if link_class and endpoint.type == "FI_EP_RDM":
            ports[endpoint.domain.removesuffix("-rdm")] = link_class
    return list(ports.items())


def _verbs(reader: _Reader) -> list[tuple[str, str]]:
    ports = list(reader.read("ibstat", ibstat.parse_ibstat) or ())
    if not ports:
        for name in reader.outputs.text:
            kind, _, device = name.partition(" ")
            rate = reader.read(name, ibstat.parse_rate) if kind == "rate" else None
            if rate:
                layer = reader.outputs.text.get(f"layer {device}", "").strip()
                ports.append(ibstat.Port(device, 1, True, rate, layer == "Ethernet"))
    return [
        (port.device, f"{'roce' if port.ethernet else 'ib'}-{port.gbit_per_s}g")
        for port in ports
        if port.active
    ]
