# SPDX-License-Identifier: MIT
"""The facts of the machine itself that every Linux kernel tells."""

from __future__ import annotations

import os
import re
import socket
from typing import Any


def local_facts() -> dict[str, Any]:
    """The part of a site that is true of the machine this runs on: host name and usable CPUs."""
    return {
        "hosts": re.escape(socket.gethostname()),
        "node_types": {"host": {"cores": len(os.sched_getaffinity(0))}},
    }
