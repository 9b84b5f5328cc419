# SPDX-License-Identifier: MIT
"""Check a node type against the rules that its schema cannot express."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from busbar.detect.nvidia import chip_of
from busbar.errors import BusbarError
from busbar.expect.bounds import RING, Shape, inside_bound
from busbar.expect.topology import raw_rate
from busbar.parse.cpulist import parse_cpu_list
from busbar.parse.tables import load_yaml
from busbar.site.family import LinkClass
from busbar.site.model import Gpus, NodeType

Key: TypeAlias = tuple[str | int, ...]
Violation: TypeAlias = tuple[Key, str, str]
"""Key in site.yaml, rule, hint."""
_RULES = load_yaml(Path(__file__).with_name("lint.yaml"))


def breach(key: Key, rule: str, **words: object) -> Violation:
    """Return what a rule of ``lint.yaml`` says of a key; its texts name the ``words``."""
    what, hint = (text.format(**words) for text in _RULES[rule])
    return key, what, hint


def gpu_violations(gpus: Gpus, classes: Mapping[str, LinkClass]) -> Iterator[Violation]:
    """Yield what is wrong with the GPUs of a node type; keys are below ``gpus``."""
    if gpus.bus_ids is not None and len(gpus.bus_ids) != gpus.count:
        yield breach(("bus_ids",), "addresses", found=len(gpus.bus_ids), count=gpus.count)
    if gpus.bus_ids is not None and len(set(gpus.bus_ids)) != len(gpus.bus_ids):
        twice = next(one for one in gpus.bus_ids if gpus.bus_ids.count(one) > 1)
        yield breach(("bus_ids",), "address-twice", address=twice)
    if gpus.count > 1 and "links" not in gpus.model_fields_set:
        yield breach(("links",), "no-links")
    if gpus.links:
        yield from _too_many(gpus, classes)
    if gpus.links and (switched := gpus.links.switched):
        chip = chip_of("", gpus.model, (gpus.arch,))
        if chip and chip.link_class == switched.link_class and switched.count < chip.links:
            words = {"count": switched.count, "model": gpus.model, "links": chip.links}
            yield breach(("links", "switched", "count"), "too-few-links", **words)
    if gpus.partitioning:
        yield from _partitioning(gpus)
    if gpus.multicast and not gpus.can_multicast:
        yield breach(("multicast",), "multicast")
    if (gpus.vendor == "nvidia") != gpus.arch.startswith("sm_"):
        yield breach(("arch",), "arch", arch=gpus.arch, vendor=gpus.vendor)


def _too_many(gpus: Gpus, classes: Mapping[str, LinkClass]) -> Iterator[Violation]:
    """Compare the links of each GPU with those that its chip has."""
    assert gpus.links
    totals: Counter[tuple[int, str]] = Counter()
    for link in gpus.links.direct(gpus.packages):
        for end in link.between:
            totals[end, link.link_class] += link.count
    if switched := gpus.links.switched:
        totals[0, switched.link_class] += switched.count
    form = "switched" if switched else "all_pairs" if gpus.links.all_pairs else "pairs"
    for (gpu, link_class), count in sorted(totals.items()):
        most = classes[link_class].most_links if link_class in classes else None
        if most and count > most:
            fits = gpus.links.all_pairs and gpus.links.all_pairs.count <= most
            more = "; if a switch connects them, write switched instead of all_pairs"
            words = {"gpu": gpu, "count": count, "name": link_class, "most": most}
            yield breach(("links", form), "too-many-links", switched=more if fits else "", **words)
            return


def _partitioning(gpus: Gpus) -> Iterator[Violation]:
    parts = gpus.partitioning
    assert parts
    if gpus.vendor != "amd":
        yield breach(("partitioning",), "modes", arch=gpus.arch)
    key = ("partitioning", "memory")
    if parts.memory == "NPS4" and parts.compute != "CPX":
        yield breach(key, "nps4", compute=parts.compute)
    if parts.memory_count > parts.compute_count:
        counts = {"memory": parts.memory_count, "compute": parts.compute_count}
        yield breach(key, "memory-partitions", **counts)
    if gpus.count % parts.compute_count:
        key = ("partitioning", "compute_count")
        yield breach(key, "partitions", count=gpus.count, parts=parts.compute_count)


def island_violations(node: NodeType, classes: dict[str, LinkClass]) -> Iterator[Violation]:
    """Yield GPUs that no path joins; keys are below the node type."""
    if node.gpus and node.gpus.links and node.gpus.host_link and node.gpus.count > 1:
        try:
            inside_bound(node, classes, Shape("all_reduce", 1, node.gpus.count, RING))
        except BusbarError as error:
            yield breach(("gpus", "links"), "islands", what=error.what)


def uplink_violations(node: NodeType, classes: dict[str, LinkClass]) -> Iterator[Violation]:
    """Yield the uplinks of PCIe switches that are faster than all ports below them."""
    if node.gpus is None or node.gpus.host_link is None:
        return
    link = node.gpus.host_link
    rates = {nic.name: raw_rate(nic.link_class, nic.count, classes) for nic in node.nics}
    for number, socket in enumerate(node.pcie):
        for at, switch in enumerate(socket.switches):
            if switch.uplink is None:
                continue
            ports = len(switch.gpus) * raw_rate(link.link_class, link.count, classes)
            ports += sum(rates[name] for name in switch.nics)
            rate = raw_rate(switch.uplink.link_class, switch.uplink.count, classes)
            if rate > ports:
                key = ("pcie", number, "switches", at, "uplink")
                yield breach(key, "uplink", rate=rate, ports=ports)


def place_violations(node: NodeType) -> Iterator[Violation]:
    """Yield what is wrong with NICs and NUMA domains; keys are below the node type."""
    count = node.gpus.count if node.gpus else 0
    names: set[str] = set()
    for index, nic in enumerate(node.nics):
        beyond = [gpu for gpu in nic.near_gpus if gpu >= count]
        if beyond:
            words = {"name": nic.name, "gpu": beyond[0], "count": count}
            yield breach(("nics", index, "near_gpus"), "near-gpu", **words)
        if len(set(nic.near_gpus)) < len(nic.near_gpus):
            yield breach(("nics", index, "near_gpus"), "near-twice")
        if nic.name in names:
            yield breach(("nics", index, "name"), "nic-twice", name=nic.name)
        names.add(nic.name)
    owners: dict[str, int] = {}
    ids: set[int] = set()
    for index, numa in enumerate(node.numa):
        if numa.id in ids:
            yield breach(("numa", index, "id"), "numa-twice", id=numa.id)
        ids.add(numa.id)
        beyond = [gpu for gpu in numa.gpus if gpu >= count]
        if beyond:
            words = {"id": numa.id, "gpu": beyond[0], "count": count}
            yield breach(("numa", index, "gpus"), "numa-gpu", **words)
        members = [("gpus", f"GPU {gpu}") for gpu in numa.gpus]
        members += [("cpus", f"CPU {cpu}") for cpu in parse_cpu_list(numa.cpus)]
        for key, member in members:
            if owners.setdefault(member, index) != index:
                first = node.numa[owners[member]].id
                words = {"member": member, "first": first, "second": numa.id}
                yield breach(("numa", index, key), "two-domains", **words)
                break
