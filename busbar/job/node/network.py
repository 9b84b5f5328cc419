# SPDX-License-Identifier: MIT
"""Ports of a node, and what waits in the TCP sockets of a job."""

from __future__ import annotations

import socket
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from busbar.gate import sysfs
from busbar.job.node.process import text_in
from busbar.parse.numbers import whole

_MOST_PORTS = 64
_MOST_SOCKETS = 1024
_ANSWER_S = 1.3
"""For NCCL."""
_ESTABLISHED, _EMPTY = "01", "00000000"
_COUNTERS = (
    ("rdma", 4, "infiniband/{device}/ports/{number}/counters/port_{}_data", ("rcv", "xmit")),
    ("rdma", 1, "infiniband/{device}/ports/{number}/hw_counters/{}_bytes", ("rx", "tx")),
    ("rdma", 1, "cxi/{cxi}/device/telemetry/hni_sts_{}_ok_octets", ("rx", "tx")),
    ("ethernet", 1, "net/{device}/device/net/{device}/statistics/{}_bytes", ("rx", "tx")),
)
"""Kind, bytes in a unit, file and directions, of InfiniBand or RoCE, EFA, Slingshot, Ethernet. A
virtual interface has no device."""


def address(text: str) -> str:
    """Return ``10.0.0.1:22`` for an address as `/proc/net/tcp` writes it."""
    host, port = text.split(":")
    # Each group of four bytes is in the order of the CPU.
    words = [bytes.fromhex(host[n : n + 8])[::-1] for n in range(0, len(host), 8)]
    old = len(words) == 1 or words[:3] == [bytes(4), bytes(4), b"\0\0\xff\xff"]
    kind, raw = (socket.AF_INET, words[-1]) if old else (socket.AF_INET6, b"".join(words))
    return f"{socket.inet_ntop(kind, raw)}:{int(port, 16)}"


def queues(pid: int, family: str, owners: dict[str, int], found: dict[str, list[Any]]) -> bool:
    """Add a look at the sockets of the job in the network namespace of a process.

    A row has the process, both ends, looks, looks with bytes to send and with unread bytes. Return
    whether there were any: the kernel searches all sockets of the node for each ``family``.
    """
    here = False
    for line in text_in(f"/proc/{pid}/net/{family}", 1 << 21).splitlines()[1:]:
        words = line.split(maxsplit=10)
        inode = words[9] if len(words) > 9 and words[3] == _ESTABLISHED else ""
        if inode in owners and inode not in found and len(found) < _MOST_SOCKETS:
            found[inode] = [owners[inode], address(words[1]), address(words[2]), 0, 0, 0]
        if row := found.get(inode):
            unsent, _, unread = words[4].partition(":")
            row[3:] = row[3] + 1, row[4] + (unsent != _EMPTY), row[5] + (unread != _EMPTY)
            here = True
    return here


def unix_pairs() -> dict[str, str]:
    """Return one name for both ends of UNIX connections, by inode; needs `ss`."""
    text = ""
    with suppress(OSError, subprocess.CalledProcessError):  # without it, nothing is followed
        text = subprocess.check_output(["ss", "-xH"]).decode("utf-8", "replace")
    pairs = [line.split()[-3::2] for line in text.splitlines() if " ESTAB " in line]
    # A name of a socket may hold a line break, and a line that somebody made up.
    lines = Counter(mine for mine, _ in pairs)
    return {a: f"unix {min(a, b)}" for a, b in pairs if lines[a] == 1}


def interfaces(pid: int) -> dict[str, int]:
    """Return the bytes that each interface of the namespace of a process moved, both ways."""
    rows = (line.split(":", 1) for line in text_in(f"/proc/{pid}/net/dev").splitlines()[2:])
    words = {name.strip()[:40]: rest.split() for name, rest in rows}
    return {name: int(row[0]) + int(row[8]) for name, row in words.items()}


def ports(root: Path = Path("/")) -> tuple[dict[str, dict[str, int]], dict[str, Any]]:
    """Return what ports counted: bytes, and errors of RDMA; and GB/s of their link and PCIe slot.

    GB/s of a slot is 0 if the kernel does not show it.
    """
    found: dict[str, dict[str, int]] = {"rdma": {}, "ethernet": {}, "errors": {}}
    limits: dict[str, Any] = {}
    for port in [*sysfs.rdma_ports(root), *sysfs.interfaces(root)][:_MOST_PORTS]:
        device, _, number = port.name.partition("/")
        cxi = device.replace("hsn", "cxi") if device[:3] == "hsn" else "none"
        parts = {"device": device, "number": number or "1", "cxi": cxi}
        for kind, factor, form, ways in _COUNTERS:
            paths = [root / f"sys/class/{form.format(way, **parts)}" for way in ways]
            # Slingshot adds the time: 4711@1700000000.5
            values = [whole(sysfs.text_in(path).partition("@")[0]) for path in paths]
            if None not in values and port.gbit_per_s:
                for way, value in zip(("in", "out"), values, strict=True):
                    found[kind][f"{port.name} {way}"] = (value or 0) * factor
                bus = root / "sys/class" / ("infiniband" if port.rdma else "net") / device
                limits[port.name] = (port.gbit_per_s / 8, sysfs.slot_gb_per_s(bus / "device"))
                if kind == "rdma":
                    found["errors"] |= {f"{port.name} {name}": n for name, n in port.counters}
                break
    return found, limits


def ras(place: str) -> str:
    """Return NCCL's status of its communicators; empty if it does not answer on this host."""
    host, _, port = (place or "localhost:28028").rpartition(":")
    answer = b""
    if host not in ("localhost", "127.0.0.1", "[::1]"):
        return ""  # a job could send root's collector anywhere
    with (
        suppress(OSError),
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S) as stream,
    ):
        stream.settimeout(_ANSWER_S)
        for line in (b"CLIENT PROTOCOL 2\n", b"TIMEOUT 1\n", b"SET FORMAT json\n"):
            stream.sendall(line)
            stream.recv(4096)
        stream.sendall(b"VERBOSE STATUS\n")
        while len(answer) < 1 << 20 and (piece := stream.recv(1 << 16)):
            answer += piece
    return answer.decode("utf-8", "replace")
