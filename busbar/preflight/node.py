# SPDX-License-Identifier: MIT
"""Line of shared memory: whether UCX uses it within a node, and copies a message only once."""

from __future__ import annotations

import re
from collections.abc import Mapping

from busbar.preflight.loader import ContainerFile
from busbar.preflight.model import Line, Status, ready
from busbar.preflight.plan import ImagePlan

_SHARED = {"all", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}
_ONE_COPY = re.compile(r"libuct_(?:cma|knem|xpmem)\.so\.\d+")


def node_line(plan: ImagePlan, libraries: Mapping[str, ContainerFile | None]) -> Line:
    """Check UCX's shared-memory transports; ready if MPI does not use UCX."""
    core = next((f for name, f in libraries.items() if name.startswith("libuct.so") and f), None)
    if core is None or plan.stack == "cray":
        return ready("shared-memory", "MPI does not use UCX within a node")
    chosen = plan.variables.get("UCX_TLS", "all")
    if not chosen.startswith("^") and not _SHARED & set(chosen.split(",")):
        return Line(
            "shared-memory",
            Status.SLOW,
            f"the image sets UCX_TLS={chosen}: ranks on one node do not use shared memory",
            "add sm to UCX_TLS, or unset it",
        )
    directory = core.path.parent / "ucx"
    one_copy = [
        name
        for name in plan.view.names(directory)
        if _ONE_COPY.fullmatch(name)
        and (file := plan.view.find(directory / name))
        and not plan.view.faults(file)
    ]
    if not one_copy:
        return Line(
            "shared-memory",
            Status.SLOW,
            f"the UCX at {core.path} has no libuct_cma, libuct_knem or libuct_xpmem: each message"
            " within a node is copied twice",
            "use a UCX that was built with cma",
        )
    return ready("shared-memory", f"{', '.join(one_copy)} beside {core.path} ({core.origin})")
