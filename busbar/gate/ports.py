# SPDX-License-Identifier: MIT
"""Judge the network ports of a node by its site: state and rate.

A port's loopback uses neither cable nor switch, so nothing is sent here: ``busbar sweep`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from busbar.gate.findings import GateFinding, compared, unknown
from busbar.gate.site import NodeKind, NodePort
from busbar.gate.sysfs import PortState
from busbar.verdict import Verdict


def judge_ports(
    ports: Sequence[PortState] | None, node: NodeKind | None, problem: str = ""
) -> Iterator[GateFinding]:
    """Yield state and rate of each port that the site lists.

    Names may differ between nodes of one type. If the node has none of them, the ports are counted
    instead.
    """
    if node is None or not node.ports:
        return
    if ports is None:
        yield unknown("nic_state", problem, silent=True)
        return
    by_name = {port.name: port for port in ports}
    found = {nic.name: _ports_of(nic, by_name) for nic in node.ports}
    if not any(found.values()):
        yield _counted(ports, node)
        return
    for nic in node.ports:
        mine = found[nic.name]
        if len(mine) < nic.count:
            value = f"{len(mine)} of {nic.count} ports" if mine else "missing"
            yield GateFinding("nic_state", Verdict.FAILED, nic.name, value, "active")
        for port in mine:
            yield _state(port)
            if port.active:
                yield _rate(port, nic)


def _ports_of(nic: NodePort, by_name: Mapping[str, PortState]) -> list[PortState]:
    names = [nic.name]
    if nic.name.startswith("cxi"):  # Slingshot: the kernel shows rate and state of the interface
        names.append(f"hsn{nic.name.removeprefix('cxi')}")
    mine = [by_name[name] for name in names if name in by_name]
    prefix = f"{nic.name}/"
    return [*mine, *(port for name, port in by_name.items() if name.startswith(prefix))]


def _counted(ports: Sequence[PortState], node: NodeKind) -> GateFinding:
    active = sum(port.rdma and port.active for port in ports)
    wanted = sum(nic.count for nic in node.ports)
    value, band = f"{active} active RDMA ports", f"{wanted} ports"
    if active >= wanted:
        note = "names differ from site.yaml"
        return GateFinding("nic_state", Verdict.PASS, value=value, band=band, note=note)
    note = f"/sys has no port or interface {node.ports[0].name}; correct nics in site.yaml"
    return GateFinding("nic_state", Verdict.UNKNOWN, value=value, band=band, note=note)


def _state(port: PortState) -> GateFinding:
    note = ", ".join(f"{name} {count}" for name, count in port.counters)
    found = compared("nic_state", port.active, port.name, port.state.lower(), "active")
    return replace(found, note=note)


def _rate(port: PortState, nic: NodePort) -> GateFinding:
    if port.gbit_per_s is None or nic.gbit_per_s is None:
        note = "the kernel does not show its rate"
        return GateFinding("nic_rate", Verdict.UNJUDGED, port.name, note=note)
    verdict = Verdict.PASS if port.gbit_per_s >= nic.gbit_per_s else Verdict.DEGRADED
    value = f"{port.gbit_per_s:g} Gb/s"
    return GateFinding("nic_rate", verdict, port.name, value, f"{nic.gbit_per_s:g} Gb/s")
