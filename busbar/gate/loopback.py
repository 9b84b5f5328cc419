# SPDX-License-Identifier: MIT
"""Move bytes through RDMA ports without a partner: from a port to itself, by ``ib_write_bw``.

The data crosses the bus of the NIC and its own loopback, but neither cable nor switch. No band is
known for it, so that a rate is never a fault. Interfaces without RDMA have no loopback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from busbar.gate.bounded import finish, output_of, program
from busbar.gate.findings import Finding, unknown
from busbar.gate.sysfs import Port
from busbar.parse import numbers
from busbar.site.model import NodeType
from busbar.verdict import Verdict

_NBYTES = 1 << 20
_SECONDS = 2
_LIMIT_S = 8.0
_FIRST_TCP_PORT = 18515
_BITS = 8
# The server has to listen before the client connects. It ends with a client that succeeds: that
# kill then finds no process is no error.
_SCRIPT = """\
set -- -d "$1" -i "$2" -p "$3" -s "$4" -D "$5" --report_gbits -F
ib_write_bw "$@" >/dev/null & sleep 0.7
ib_write_bw "$@" 127.0.0.1; status=$?; kill $! 2>/dev/null; exit $status
"""
_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+(?P<gbit>\d+(?:\.\d+)?)\s+[\d.]+\s*$", re.MULTILINE)
"""Size, count, peak, mean, messages per second."""


def measure_ports(ports: Sequence[Port], node: NodeType | None) -> Iterator[Finding]:
    """Yield the rate of each active RDMA port that the site lists, all at the same time."""
    names = {nic.name for nic in node.nics} if node else set()
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
        yield Finding(
            "nic_copy", Verdict.UNJUDGED, port.name, f"{rate:.4g} GB/s", note=note, gb_per_s=rate
        )


def rate_of(text: str) -> float | None:
    """Return the mean Gbit/s of the last row that ``ib_write_bw`` printed; None without one."""
    rates = [numbers.real(row["gbit"]) for row in _ROW.finditer(text)]
    return next((rate for rate in reversed(rates) if rate), None)


def _arguments(name: str, tcp_port: int) -> tuple[str, ...]:
    device, _, number = name.partition("/")
    return device, number or "1", str(tcp_port), str(_NBYTES), str(_SECONDS)
