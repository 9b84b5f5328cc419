# SPDX-License-Identifier: MIT
"""Check a node type against the rules that its schema cannot express."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from busbar.expect.topology import raw_rate
from busbar.parse.cpulist import parse_cpu_list
from busbar.site.family import LinkClass
from busbar.site.model import Gpus, NodeType

Key: TypeAlias = tuple[str | int, ...]
Violation: TypeAlias = tuple[Key, str, str]
"""Key in site.yaml, rule, hint."""


def gpu_violations(gpus: Gpus, classes: Mapping[str, LinkClass]) -> Iterator[Violation]:
    """Yield what is wrong with the GPUs of a node type; keys are below ``gpus``."""
    if gpus.bus_ids is not None and len(gpus.bus_ids) != gpus.count:
        yield (
            ("bus_ids",),
            f"{len(gpus.bus_ids)} addresses for {gpus.count} GPUs",
            "list one address per GPU, in device order",
        )
    if gpus.bus_ids is not None and len(set(gpus.bus_ids)) != len(gpus.bus_ids):
        twice = next(one for one in gpus.bus_ids if gpus.bus_ids.count(one) > 1)
        yield ("bus_ids",), f"duplicate address {twice}", "list the address of each GPU once"
    if gpus.count > 1 and "links" not in gpus.model_fields_set:
        yield (
            ("links",),
            "several GPUs without links between them",
            "add switched, all_pairs or pairs, or links: null if they are unknown",
        )
    if gpus.links:
        yield from _links(gpus)
        yield from _too_many(gpus, classes)
    if gpus.partitioning:
        yield from _partitioning(gpus)
    if (gpus.vendor == "nvidia") != gpus.arch.startswith("sm_"):
        yield (
            ("arch",),
            f"{gpus.arch} is not an architecture of {gpus.vendor}",
            "correct arch or vendor",
        )


def _links(gpus: Gpus) -> Iterator[Violation]:
    assert gpus.links
    package = gpus.links.package
    if package and gpus.count % package.devices:
        yield (
            ("links", "package", "devices"),
            f"{gpus.count} GPUs do not fill packages of {package.devices}",
            "correct the number of GPUs or of devices",
        )
    for index, link in enumerate(gpus.links.pairs):
        if max(link.between) >= gpus.packages:
            yield (
                ("links", "pairs", index, "between"),
                f"no GPU {max(link.between)}",
                f"the node has GPUs 0 to {gpus.packages - 1}",
            )


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
            hint = "state the links to each peer, not those of the GPU"
            if gpus.links.all_pairs and gpus.links.all_pairs.count <= most:
                hint += "; if a switch connects them, write switched instead of all_pairs"
            rule = f"GPU {gpu} would have {count} links of {link_class}; a GPU has at most {most}"
            yield ("links", form), rule, hint
            return


def _partitioning(gpus: Gpus) -> Iterator[Violation]:
    parts = gpus.partitioning
    assert parts
    key = ("partitioning", "memory")
    if parts.memory == "NPS4" and parts.compute != "CPX":
        yield (
            key,
            f"NPS4 with {parts.compute}; NPS4 needs CPX",
            "set compute to CPX or memory to NPS1",
        )
    if parts.memory_count > parts.compute_count:
        yield (
            key,
            f"more memory partitions ({parts.memory_count}) than compute partitions"
            f" ({parts.compute_count})",
            "use a memory mode with fewer partitions, or a compute mode with more",
        )
    if gpus.count % parts.compute_count:
        yield (
            ("partitioning", "compute_count"),
            f"{gpus.count} GPUs are not a multiple of {parts.compute_count} partitions",
            "correct the number of GPUs or of partitions",
        )


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
                yield (
                    ("pcie", number, "switches", at, "uplink"),
                    f"{rate:g} GB/s, but the ports below the switch have {ports:g}",
                    "correct the uplink, or list all GPUs and NICs of the switch",
                )


def place_violations(node: NodeType) -> Iterator[Violation]:
    """Yield what is wrong with NICs and NUMA domains; keys are below the node type."""
    count = node.gpus.count if node.gpus else 0
    names: set[str] = set()
    for index, nic in enumerate(node.nics):
        beyond = [gpu for gpu in nic.near_gpus if gpu >= count]
        if beyond:
            rule = f"NIC {nic.name} is near GPU {beyond[0]}, which the node does not have"
            yield ("nics", index, "near_gpus"), rule, f"the node has {count} GPUs"
        if nic.name in names:
            yield ("nics", index, "name"), f"duplicate NIC name {nic.name}", "rename one"
        names.add(nic.name)
    owners: dict[str, int] = {}
    ids: set[int] = set()
    for index, numa in enumerate(node.numa):
        if numa.id in ids:
            yield ("numa", index, "id"), f"duplicate NUMA domain {numa.id}", "renumber one"
        ids.add(numa.id)
        beyond = [gpu for gpu in numa.gpus if gpu >= count]
        if beyond:
            rule = f"NUMA domain {numa.id} lists GPU {beyond[0]}, which the node does not have"
            yield ("numa", index, "gpus"), rule, f"the node has {count} GPUs"
        members = [("gpus", f"GPU {gpu}") for gpu in numa.gpus]
        members += [("cpus", f"CPU {cpu}") for cpu in parse_cpu_list(numa.cpus)]
        for key, member in members:
            if owners.setdefault(member, index) != index:
                first = node.numa[owners[member]].id
                rule = f"{member} is in NUMA domains {first} and {numa.id}"
                yield ("numa", index, key), rule, "list it once"
                break


def meant(name: str, classes: Mapping[str, LinkClass]) -> str:
    """Suggest the class whose source calls a link so, as HDR200 or NDR of InfiniBand."""
    word = re.match("[a-z]+", name.casefold())
    if word and not any(known.startswith(word[0]) for known in classes):
        for called in (name, word[0]):
            for known, link in classes.items():
                if re.search(rf"\b{re.escape(called)}\b", link.source, re.IGNORECASE):
                    return f"did you mean {known!r}?"
    return ""
