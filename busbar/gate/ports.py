# SPDX-License-Identifier: MIT
"""Judge the network ports of a node by its site: state and rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from busbar.gate.findings import Finding, unknown
from busbar.gate.sysfs import Port
from busbar.site.family import LinkClass
from busbar.site.model import Nic, NodeType
from busbar.verdict import Verdict

_BITS = 8


def judge_ports(
    ports: Sequence[Port] | None,
    node: NodeType | None,
    classes: Mapping[str, LinkClass],
    problem: str = "",
) -> Iterator[Finding]:
    """Yield state and rate of each port that the site lists.

    Names may differ between nodes of one type. If the node has none of them, the ports are counted
    instead.
    """
    if node is None or not node.nics:
        return
    if ports is None:
        yield unknown("nic_state", problem)
        return
    by_name = {port.name: port for port in ports}
    found = {nic.name: _ports_of(nic, by_name) for nic in node.nics}
    if not any(found.values()):
        yield _counted(ports, node)
        return
    for nic in node.nics:
        mine = found[nic.name]
        if len(mine) < nic.count:
            value = f"{len(mine)} of {nic.count} ports" if mine else "missing"
            yield Finding("nic_state", Verdict.FAILED, nic.name, value, "active")
        for port in mine:
            yield _state(port)
            if port.active:
                yield _rate(port, nic, classes)


def _ports_of(nic: Nic, by_name: Mapping[str, Port]) -> list[Port]:
    names = [nic.name]
    if nic.name.startswith("cxi"):  # Slingshot: the kernel shows rate and state of the interface
        names.append(f"hsn{nic.name.removeprefix('cxi')}")
    mine = [by_name[name] for name in names if name in by_name]
    prefix = f"{nic.name}/"
    return [*mine, *(port for name, port in by_name.items() if name.startswith(prefix))]


def _counted(ports: Sequence[Port], node: NodeType) -> Finding:
    active = sum(port.rdma and port.active for port in ports)
    value, band = f"{active} active RDMA ports", f"{node.nic_count} ports"
    if active >= node.nic_count:
        note = "other names than in site.yaml"
        return Finding("nic_state", Verdict.PASS, value=value, band=band, note=note)
    note = f"none is named {node.nics[0].name}; correct site.yaml, or give --partition"
    return Finding("nic_state", Verdict.UNKNOWN, value=value, band=band, note=note)


def _state(port: Port) -> Finding:
    verdict = Verdict.PASS if port.active else Verdict.FAILED
    note = ", ".join(f"{name} {count}" for name, count in port.counters)
    return Finding("nic_state", verdict, port.name, port.state.lower(), "active", note)


def _rate(port: Port, nic: Nic, classes: Mapping[str, LinkClass]) -> Finding:
    if port.gbit_per_s is None or nic.link_class not in classes:
        note = "the kernel does not show its rate"
        return Finding("nic_rate", Verdict.UNJUDGED, port.name, note=note)
    wanted = classes[nic.link_class].raw_gb_per_s * _BITS
    verdict = Verdict.PASS if port.gbit_per_s >= wanted else Verdict.DEGRADED
    value = f"{port.gbit_per_s:g} Gb/s"
    return Finding("nic_rate", verdict, port.name, value, f"{wanted:g} Gb/s")
