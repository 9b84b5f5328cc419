# SPDX-License-Identifier: MIT
"""The facts of the machine itself that every Linux kernel tells."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any


def local_facts() -> dict[str, Any]:
    """The part of a site that is true of the machine this runs on: host name and usable CPUs."""
    return {
        "hosts": re.escape(socket.gethostname()),
        "node_types": {"host": {"cores": len(os.sched_getaffinity(0))}},
    }


def physical_cores() -> int:
    """Cores that this process may use; two hyper-threads of one core count once."""
    cpus = Path("/sys/devices/system/cpu")
    siblings = set()
    for cpu in os.sched_getaffinity(0):
        shared = cpus / f"cpu{cpu}" / "topology/thread_siblings_list"
        siblings.add(shared.read_text().strip() if shared.is_file() else str(cpu))
    return len(siblings)
