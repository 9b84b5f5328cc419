# SPDX-License-Identifier: MIT
"""Judge the network ports of a node by its site: state and rate, and the rate of their loopback.

RDMA ports move bytes without a partner, from a port to itself, by ``ib_write_bw``. The data
crosses the bus of the NIC and its own loopback, but neither cable nor switch. No band is known for
it, so that a rate is never a fault. Interfaces without RDMA have no loopback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from busbar.gate.bounded import finish, output_of, program
from busbar.gate.findings import GateFinding, compared, unknown
from busbar.gate.site import NodeKind, NodePort
from busbar.gate.sysfs import PortState
from busbar.parse import numbers
from busbar.verdict import Verdict

_BITS = 8
_NBYTES = 1 << 20
_SECONDS = 2
_LIMIT_S = 8.0
_FIRST_TCP_PORT = 18515
# The server has to listen before the client connects. It ends with a client that succeeds: that
# kill then finds no process is no error.
_SCRIPT = """\
set -- -d "$1" -i "$2" -p "$3" -s "$4" -D "$5" --report_gbits -F
ib_write_bw "$@" >/dev/null & sleep 0.7
ib_write_bw "$@" 127.0.0.1; status=$?; kill $! 2>/dev/null; exit $status
"""
_ROW = re.compile(
    r"^[ \t]*+\d+[ \t]+\d+[ \t]+[\d.]+[ \t]+(?P<gbit>\d+(?:\.\d+)?)[ \t]+[\d.]+[ \t]*+$",
    re.MULTILINE,
)
"""Size, count, peak, mean, messages per second."""


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
    active, wanted = (
        sum(port.rdma and port.active for port in ports),
        sum(nic.count for nic in node.ports),
    )
    value, band = f"{active} active RDMA ports", f"{wanted} ports"
    if active >= wanted:
        note = "other names than in site.yaml"
        return GateFinding("nic_state", Verdict.PASS, value=value, band=band, note=note)
    note = f"none is named {node.ports[0].name}; correct site.yaml, or give --partition"
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


def measure_ports(ports: Sequence[PortState], node: NodeKind | None) -> Iterator[GateFinding]:
    """Yield the rate of each active RDMA port that the site lists, all at the same time."""
    names = {nic.name for nic in node.ports} if node else set()
    mine = [
        port
        for port in ports
        if port.rdma and port.active and port.name.partition("/")[0] in names
    ]
    tasks = [
        program(("sh", "-c", _SCRIPT, "sh", *_arguments(port.name, _FIRST_TCP_PORT + n)), _LIMIT_S)
        for n, port in enumerate(mine)
    ]
    finish(tasks)
    for port, task in zip(mine, tasks, strict=True):
        text, problem = output_of(task)
        gbit = rate_of(text)
        if gbit is None:
            yield unknown("nic_copy", f"ib_write_bw {problem or 'printed no rate'}", port.name)
            continue
        note = "loopback of the port, without cable and switch; no band is known"
        rate = gbit / _BITS
        yield GateFinding(
            "nic_copy", Verdict.UNJUDGED, port.name, f"{rate:.4g} GB/s", note=note, gb_per_s=rate
        )


def rate_of(text: str) -> float | None:
    """Return the mean Gbit/s of the last row that ``ib_write_bw`` printed; None without one."""
    rates = [numbers.real(row["gbit"]) for row in _ROW.finditer(text)]
    return next((rate for rate in reversed(rates) if rate), None)


def _arguments(name: str, tcp_port: int) -> tuple[str, ...]:
    device, _, number = name.partition("/")
    return device, number or "1", str(tcp_port), str(_NBYTES), str(_SECONDS)
