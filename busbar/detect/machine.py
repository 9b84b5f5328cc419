# SPDX-License-Identifier: MIT
"""Compose a site from the output of a machine's tools, and match it with the known sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from busbar.detect import amd as detect_amd
from busbar.detect import nvidia as detect_nvidia
from busbar.detect.compare import differences
from busbar.detect.detected import Detected, DetectedGpus
from busbar.detect.gather import Outputs, gather
from busbar.errors import BusbarError
from busbar.parse.machine import amd_smi, fi_info, hwloc, ibstat, nvidia_smi, rocm_smi, scontrol
from busbar.site.cpulist import cpu_list
from busbar.site.load import load, names, ships
from busbar.site.model import Gpus, Name, Nic, Numa, Site
from busbar.site.yamlfile import dotted, rule_of
from busbar.terminal import stderr
from busbar.text_file import read_text

Parsed = TypeVar("Parsed")
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
    """Parses outputs; one that cannot be parsed becomes a remark instead of an error."""

    outputs: Outputs
    remarks: list[str] = field(default_factory=list)
    failed_gpu_tools: list[str] = field(default_factory=list)
    """The remarks on tools of a GPU vendor."""

    def remark(self, tool: str, text: str) -> None:
        self.remarks.append(text)
        if tool.startswith(_VENDOR_TOOLS):
            self.failed_gpu_tools.append(text)

    def read(self, name: str, parser: Callable[[str], Parsed]) -> Parsed | None:
        text = self.outputs.text.get(name)
        if text is None:
            return None
        try:
            return _parsed(parser, text)
        except ValueError as error:
            self.remark(name, f"{name}: {error}")
            return None


_MOST_BYTES = 64 * 2**20


def recorded(files: Sequence[Path]) -> Outputs:
    """Read outputs saved on another machine; each is recognised by its content.

    Raises ``BusbarError`` for a file that cannot be read or recognised.
    """
    text: dict[str, str] = {}
    for file in files:
        try:
            content = read_text(file, _MOST_BYTES, errors="replace")
        except OSError as error:
            raise BusbarError(f"cannot be read: {error.strerror}", where=str(file)) from error
        name = next((name for name, parser in _PARSERS.items() if _reads(parser, content)), None)
        if name is None:
            raise BusbarError(
                "not a recognised tool output",
                where=str(file),
                hint=f"give outputs of {', '.join(_PARSERS)}",
            )
        text[name] = content
    return Outputs(text)


def _parsed(parser: Callable[[str], Parsed], text: str) -> Parsed:
    """Parse an output; raise ``ValueError`` for any kind of damage."""
    try:
        return parser(text)
    except (AttributeError, LookupError, TypeError, OverflowError, RecursionError) as error:
        # Damaged JSON and XML can still be well-formed, with values of another type.
        raise ValueError(f"the output is damaged: {error}") from error


def _reads(parser: Callable[[str], object], content: str) -> bool:
    try:
        _parsed(parser, content)
    except ValueError:
        return False
    return True


def detect() -> Detected:
    """Detect the site of this machine."""
    return compose(gather())


def compose(outputs: Outputs) -> Detected:
    """Compose the site that the outputs describe."""
    reader = _Reader(outputs)
    for name, message in outputs.failed.items():
        reader.remark(name, f"{name} failed: {message}")
    reader.remarks += outputs.unseen_gpus
    reader.failed_gpu_tools += outputs.unseen_gpus
    topology = reader.read("nvidia-smi topo", nvidia_smi.parse_topology)
    gpus = detect_nvidia.gpus(
        topology,
        reader.read("nvidia-smi -q", nvidia_smi.parse_inventory),
        reader.read("nvidia-smi nvlink", nvidia_smi.parse_nvlink),
    ) or detect_amd.gpus(
        reader.read("amd-smi topology", amd_smi.parse_topology),
        reader.read("amd-smi static", amd_smi.parse_static),
        reader.read("rocm-smi", rocm_smi.parse_topology),
    )
    facts: dict[str, Any] = {}
    if gpus:
        reader.remarks += gpus.remarks
        if not gpus.facts:
            reader.failed_gpu_tools += gpus.remarks
        elif _is_valid(Gpus, gpus.facts, "the GPUs", reader):
            facts["gpus"] = gpus.facts
        else:
            reader.failed_gpu_tools.append(reader.remarks[-1])
            gpus = None
    nics = [nic for nic in _nics(reader, topology) if _is_valid(Nic, nic, "a NIC", reader)]
    machine = reader.read("lstopo", hwloc.parse_machine) or reader.read(
        "lstopo-no-graphics", hwloc.parse_machine
    )
    numa = [n for n in _numa(machine, gpus) if _is_valid(Numa, n, "a NUMA domain", reader)]
    nodes = reader.read("scontrol", scontrol.parse_nodes)
    cores = _cores(outputs, machine, gpus, nodes)
    facts |= {"nics": nics} if nics else {}
    facts |= {"numa": numa} if numa else {}
    facts |= {"cores": cores} if cores else {}
    facts |= {"instance_type": outputs.instance_type} if outputs.instance_type else {}
    try:
        site = Site.model_validate(_site(outputs, facts, gpus, nodes))
    except ValidationError as error:
        first = error.errors()[0]
        raise BusbarError(
            rule_of(first)[0],
            where=f"the detected site: {dotted(first['loc'])}",
            hint="check the outputs of the tools; with --from, all of one machine",
        ) from error
    return Detected(
        site,
        tuple(reader.remarks),
        outputs.rdma_listed or bool(nics),
        () if "gpus" in facts else tuple(reader.failed_gpu_tools),
    )


def _is_valid(model: type[BaseModel], facts: dict[str, Any], what: str, reader: _Reader) -> bool:
    """Return whether the facts are valid in a site; add a remark if not."""
    try:
        model.model_validate(facts)
    except ValidationError as error:
        first = error.errors()[0]
        key = dotted(first["loc"])
        reader.remarks.append(
            f"{key} of {what} cannot be {str(first['input'])[:40]!r}; omitting {what}"
        )
        return False
    return True


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
            if not any(difference.marks_the_system for difference in different):
                matching.append((ships(site), len(different), name))
    return min(matching)[-1] if matching else None


def _site(
    outputs: Outputs,
    node: dict[str, Any],
    gpus: DetectedGpus | None,
    nodes: tuple[scontrol.SlurmNode, ...] | None,
) -> dict[str, Any]:
    """Return the keys of `site.yaml` for one node type."""
    slurm = "scontrol" in outputs.text
    count = node.get("gpus", {}).get("count", 0)
    stack = "host" if not gpus or not gpus.facts else gpus.stack
    about = f"{count} x {node['gpus']['model']}" if count else "no GPUs"
    partition: dict[str, Any] = {
        "name": _partition_name(nodes),
        "node_type": "node",
        "launcher": "srun" if slurm else "mpirun",
    }
    family = _family(node, gpus)
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
    """Return the scheduler's name of the partition if it is valid in a site, else ``node``."""
    name = nodes[0].partitions[0].lower() if nodes and nodes[0].partitions else ""
    try:
        return _IS_NAME.validate_python(name)
    except ValidationError:
        return "node"


def _family(node: dict[str, Any], gpus: DetectedGpus | None) -> str:
    """Return the family for this hardware; ``generic`` if it is unknown."""
    nics = {nic["class"].split("-")[0] for nic in node.get("nics", ())}
    by_links = gpus.family if gpus else "generic"
    if "efa" in nics or node.get("instance_type"):
        return "efa" if gpus and gpus.stack == "cuda" else by_links
    if by_links == "nvlink4" and "roce" in nics:
        return "roce"
    if by_links == "mi250x" and "slingshot" in nics:
        return "slingshot"
    return by_links


def _cores(
    outputs: Outputs,
    machine: hwloc.Machine | None,
    gpus: DetectedGpus | None,
    nodes: tuple[scontrol.SlurmNode, ...] | None,
) -> int | None:
    """Count the logical CPUs that this process may use, else those that a tool reports."""
    if outputs.cpus:
        return len(outputs.cpus)
    if nodes:
        return nodes[0].cpus
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


def _nics(reader: _Reader, topology: nvidia_smi.Topology | None) -> list[dict[str, Any]]:
    """Return the ports: from libfabric for EFA and Slingshot, else from ibstat or sysfs."""
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
                ports.append(ibstat.Port(device, True, rate, layer == "Ethernet"))
    return [
        (port.device, f"{'roce' if port.ethernet else 'ib'}-{port.gbit_per_s}g")
        for port in ports
        if port.active
    ]
