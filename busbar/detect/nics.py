# SPDX-License-Identifier: MIT
"""Detect the network ports of a node: which are rails, and which GPUs are near."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from busbar.detect.detected import remark
from busbar.detect.nvidia import near_gpus
from busbar.detect.pci import Place, nearest
from busbar.detect.reader import Reader
from busbar.parse import numbers
from busbar.parse.machine.nvidia_smi import Topology
from busbar.parse.machine.ports import parse_fi_info, parse_ibstat, parse_rate
from busbar.parse.tables import beside
from busbar.site.family import LinkClass

FABRICS: Mapping[str, Mapping[str, Any]] = beside(__file__)
"""Facts about a fabric by the kind of its ports."""
_KINDS = {"efa": "efa", "cxi": "slingshot"}
_MBIT = 1000
_SLINGSHOT_GBIT = 200
_HALVED = "GB10"
_SECOND = re.compile(r"P\d+(?=p\d)")
"""A DGX Spark reaches a port by two PCI domains: rocep1s0f0 and roceP2p1s0f0 are one."""
_SWITCHED = ("PIX", "PXB")
"""A NIC and a GPU below the same PCIe switch."""


@dataclass(frozen=True)
class _NetworkPort:
    """One active port."""

    device: str
    kind: str
    """A key of `FABRICS`."""
    gbit_per_s: int

    @property
    def link_class(self) -> str:
        return "slingshot-11" if self.kind == "slingshot" else f"{self.kind}-{self.gbit_per_s}g"


def nics(
    reader: Reader,
    topology: Topology | None,
    gpus: Mapping[str, Any],
    classes: Mapping[str, LinkClass],
) -> list[dict[str, Any]]:
    """Return the rails: the ports that carry the traffic between GPUs of different nodes."""
    ports = _libfabric(reader) or _verbs(reader)
    unknown = [port.device for port in ports if not port.gbit_per_s and port.kind == "efa"]
    devices = {port.device for port in ports} if _HALVED in gpus.get("model", "") else set()
    halves = {n for n in devices if _SECOND.search(n) and _SECOND.sub("", n) in devices}
    if halves:
        reader.remarks.append(remark("halves", names=", ".join(sorted(halves))))
    ports = [port for port in ports if port.device not in {*unknown, *halves}]
    if topology and topology.nics and not ports:
        unknown = unknown or list(topology.nics.values())
    if unknown:
        reader.remarks.append(remark("rates", names=", ".join(unknown)))
    elif not ports and (ports := _ethernet(reader)):
        reader.remarks.append(remark("no-rdma"))
    near = _near(ports, topology, reader.outputs.places, gpus.get("bus_ids", ()))
    rails = _rails(ports, _far(ports, topology), reader)
    unknown = sorted({port.link_class for port in rails} - set(classes))
    for link_class in unknown:
        names = ", ".join(port.device for port in rails if port.link_class == link_class)
        reader.remarks.append(remark("no-class", name=link_class, what=f"NICs {names}"))
    counts = Counter(port for port in rails if port.link_class in classes)
    return [
        {"name": port.device, "class": port.link_class}
        | ({"count": count} if count > 1 else {})
        | ({"near_gpus": list(near[port.device])} if near.get(port.device) else {})
        for port, count in counts.items()
    ]


def _libfabric(reader: Reader) -> list[_NetworkPort]:
    endpoints = reader.read("fi_info", parse_fi_info) or ()
    ports: dict[str, _NetworkPort] = {}
    for endpoint in endpoints:
        kind = _KINDS.get(endpoint.provider.split(";")[0])
        if kind and endpoint.type == "FI_EP_RDM":
            device = endpoint.domain.removesuffix("-rdm")
            rate = reader.read(f"rate {device}", parse_rate)
            rate = rate or (0 if kind == "efa" else _SLINGSHOT_GBIT)
            ports[device] = _NetworkPort(device, kind, rate)
    return list(ports.values())


def _verbs(reader: Reader) -> list[_NetworkPort]:
    listed = [
        _NetworkPort(port.device, "roce" if port.ethernet else "ib", port.gbit_per_s)
        for port in reader.read("ibstat", parse_ibstat) or ()
        if port.active
    ]
    if listed:
        return listed
    kinds = {"Ethernet": "roce", "InfiniBand": "ib", "Unspecified": "efa"}
    for name in reader.outputs.text:
        kind, _, port = name.partition(" ")
        rate = reader.read(name, parse_rate) if kind == "rate" else None
        layer = kinds.get(reader.outputs.text.get(f"layer {port}", "").strip())
        if rate and layer:
            listed.append(_NetworkPort(port.partition("/")[0], layer, rate))
    return listed


def _ethernet(reader: Reader) -> list[_NetworkPort]:
    """Return the ports of a node whose network has no RDMA."""
    return [
        _NetworkPort(port, "eth", numbers.count(reader.outputs.text[f"{kind} {port}"]) // _MBIT)
        for kind, _, port in (name.partition(" ") for name in reader.outputs.text)
        if kind == "ethernet"
    ]


def _rails(ports: list[_NetworkPort], far: set[str], reader: Reader) -> list[_NetworkPort]:
    """Return the ports of the network between GPUs.

    Nodes have other ports, for storage and administration: on another network, slower, or far
    from every GPU where the others are below the same switch as one.
    """
    if not ports:
        return []
    totals: Counter[str] = Counter()
    for port in ports:
        totals[port.kind] += port.gbit_per_s
    main = max(totals, key=lambda kind: (totals[kind], kind == "ib"))
    wanted = FABRICS[main]["name"]
    fastest = max(port.gbit_per_s for port in ports if port.kind == main)
    reasons = {
        port: f"{FABRICS[port.kind]['name']}, while most of the bandwidth is {wanted}"
        if port.kind != main
        else f"{port.gbit_per_s} Gb/s, while others have {fastest}"
        if port.gbit_per_s < fastest
        else "below no switch of a GPU, while others are"
        for port in ports
        if port.kind != main or port.gbit_per_s < fastest or port.device in far
    }
    for reason in dict.fromkeys(reasons.values()):
        names = ", ".join(dict.fromkeys(p.device for p, r in reasons.items() if r == reason))
        reader.remarks.append(remark("no-rails", names=names, reason=reason))
    return [port for port in ports if port not in reasons]


def _columns(ports: list[_NetworkPort], topology: Topology | None) -> dict[str, str]:
    """Return the name in the matrix for each device.

    The matrix can have other names than libfabric (``mlx5_0`` and ``cxi0``); the order is the
    same, as both follow the PCI bus.
    """
    if topology is None:
        return {}
    devices = list(dict.fromkeys(port.device for port in ports))
    columns = {device: column for column, device in topology.nics.items()}
    if not columns.keys() & set(devices) and len(columns) == len(devices):
        return dict(zip(devices, topology.nics, strict=True))
    return {device: columns[device] for device in devices if device in columns}


def _near(
    ports: list[_NetworkPort],
    topology: Topology | None,
    places: Mapping[str, Place],
    bus_ids: Sequence[str],
) -> dict[str, tuple[int, ...]]:
    """Return the near GPUs of each device, from the matrix or from their position on the bus."""
    columns = _columns(ports, topology)
    if topology and columns:
        by_device = near_gpus(topology)
        return {device: by_device[topology.nics[name]] for device, name in columns.items()}
    return {
        port.device: nearest(places[port.device], bus_ids, places)
        for port in ports
        if port.device in places
    }


def _far(ports: list[_NetworkPort], topology: Topology | None) -> set[str]:
    """Return the devices of another NUMA domain than all GPUs, if others share a switch."""
    columns = _columns(ports, topology)
    if topology is None or not columns:
        return set()
    codes = {
        device: {topology.codes[f"GPU{gpu}", column] for gpu in range(topology.gpus)}
        for device, column in columns.items()
    }
    if not any(code in _SWITCHED for found in codes.values() for code in found):
        return set()
    return {device for device, row in codes.items() if row <= {"SYS", "SOC"}}
