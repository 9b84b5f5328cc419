# SPDX-License-Identifier: MIT
"""The facts of the machine itself that every Linux kernel tells."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

_CPUS = Path("/sys/devices/system/cpu")


def local_facts() -> dict[str, Any]:
    """Return what is true of the machine this runs on: its host name and the usable CPUs."""
    cpus = os.sched_getaffinity(0)
    node = {"cores": len(cpus)}
    cores = {_topology(cpu, "thread_siblings_list") for cpu in cpus}
    sockets = {_topology(cpu, "physical_package_id") for cpu in cpus}
    if "" not in cores | sockets:
        node["sockets"] = len(sockets)
        if len(cpus) % len(cores) == 0:  # else some cores have fewer usable CPUs than others
            node["threads_per_core"] = len(cpus) // len(cores)
    return {"hosts": re.escape(socket.gethostname()), "node_types": {"host": node}}


def _topology(cpu: int, name: str) -> str:
    """Return a fact of a CPU as the kernel writes it; empty if it does not."""
    path = _CPUS / f"cpu{cpu}" / "topology" / name
    return path.read_text().strip() if path.is_file() else ""
