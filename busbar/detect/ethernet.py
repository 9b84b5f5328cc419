# SPDX-License-Identifier: MIT
"""The Ethernet ports of this machine that carry TCP and no RDMA, as the kernel lists them."""

from __future__ import annotations

from pathlib import Path

from busbar.parse import numbers

_ETHERNET = "1"
"""ARPHRD_ETHER: not loopback, InfiniBand or a tunnel."""


def ethernet(root: Path) -> dict[str, str]:
    """Return the speed of each port in Mbit/s, named ``ethernet INTERFACE``.

    A bond stands for its ports. If some ports have an IPv4 route, the others carry nothing.
    """
    ports = {
        path.name: speed
        for path in sorted(root.glob("sys/class/net/*"))
        if _is_port(path) and (speed := numbers.whole(_text(path / "speed"))) and speed > 0
    }
    routed = {line.split()[0] for line in _text(root / "proc/net/route").splitlines() if line}
    used = ports.keys() & routed or ports.keys()
    return {f"ethernet {name}": str(speed) for name, speed in ports.items() if name in used}


def _is_port(path: Path) -> bool:
    """Return whether an interface is a port with a link: a device, or a bond of some."""
    return (
        _text(path / "type") == _ETHERNET
        and _text(path / "operstate") == "up"
        and ((path / "device").exists() or (path / "bonding").exists())
        and not (path / "device" / "infiniband").exists()
        and not (path / "master" / "bonding").exists()
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # the speed of a port without a link cannot be read
        return ""
