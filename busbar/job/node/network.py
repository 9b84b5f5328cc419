# SPDX-License-Identifier: MIT
"""Ports of a node, and what waits in the TCP sockets of a job."""

from __future__ import annotations

import glob
import socket
from typing import Any

from busbar.job.node.process import text_in
from busbar.parse.numbers import whole


def address(text: str) -> str:
    """Return ``10.0.0.1:22`` for an address as `/proc/net/tcp` writes it."""
    host, port = text.split(":")
    # Each group of four bytes is in the order of the CPU.
    words = [bytes.fromhex(host[n : n + 8])[::-1] for n in range(0, len(host), 8)]
    old = len(words) == 1 or words[:3] == [bytes(4), bytes(4), b"\0\0\xff\xff"]
    kind, raw = (socket.AF_INET, words[-1]) if old else (socket.AF_INET6, b"".join(words))
    return f"{socket.inet_ntop(kind, raw)}:{int(port, 16)}"


def queues(pid: int, owners: dict[str, int], found: dict[str, list[Any]]) -> None:
    """Add a look at the sockets of the job in the network namespace of a process.

    A row has the process, both ends, looks, looks with bytes to send and with unread bytes.
    """
    for family in ("tcp", "tcp6"):
        for line in text_in(f"/proc/{pid}/net/{family}", 1 << 21).splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == "01" and words[9] in owners:
                if words[9] not in found:
                    ends = address(words[1]), address(words[2])
                    found[words[9]] = [owners[words[9]], *ends, 0, 0, 0]
                unsent, unread = (int(word, 16) for word in words[4].split(":"))
                for at, more in enumerate((True, unsent > 0, unread > 0), 3):
                    found[words[9]][at] += int(more)


def interfaces(pid: int) -> dict[str, int]:
    """Return the bytes that each interface of the namespace of a process moved, both ways."""
    rows = (line.split(":", 1) for line in text_in(f"/proc/{pid}/net/dev").splitlines()[2:])
    words = {name.strip()[:40]: rest.split() for name, rest in rows}
    return {name: int(row[0]) + int(row[8]) for name, row in words.items()}


def rdma() -> tuple[dict[str, int], dict[str, float]]:
    """Return the bytes that RDMA ports received and sent, and the bytes per second they can."""
    found: dict[str, int] = {}
    limits: dict[str, float] = {}
    for place in sorted(glob.glob("/sys/class/infiniband/*/ports/*"))[:64]:
        name = f"{place.split('/')[4]}/{place.split('/')[6]}"
        rate = text_in(f"{place}/rate", 64).partition(" ")[0]
        for form, factor in (("counters/port_*_data", 4), ("hw_counters/[rt]x_bytes", 1)):
            files = sorted(glob.glob(f"{place}/{form}"))
            values = [whole(text_in(path, 64)) or 0 for path in files]
            if len(values) == 2 and whole(rate):
                ways = (f"{name} in", f"{name} out")
                found |= {way: value * factor for way, value in zip(ways, values, strict=True)}
                limits |= dict.fromkeys(ways, int(rate) * 1e9 / 8)
                break
    return found, limits
