# SPDX-License-Identifier: MIT
"""Line of shared memory: whether UCX uses it within a node, and copies a message only once."""

from __future__ import annotations

from busbar.preflight.loader import Libraries, ucx_core
from busbar.preflight.model import Line, ready, slow
from busbar.preflight.plan import ImagePlan
from busbar.site.delivery import CRAY_STACKS

_SHARED = {"all", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}


def node_line(plan: ImagePlan, libraries: Libraries) -> Line:
    """Check UCX's shared-memory transports; ready if MPI does not use UCX."""
    core = ucx_core(libraries)
    if core is None or plan.stack in CRAY_STACKS:
        return ready("shared-memory", "MPI does not use UCX within a node")
    chosen = plan.contents.variables.get("UCX_TLS", "all")
    if not chosen.startswith("^") and not _SHARED & set(chosen.split(",")):
        return slow(
            "shared-memory",
            f"the image sets UCX_TLS={chosen}: ranks on one node do not use shared memory",
            "add sm to UCX_TLS, or unset it",
        )
    found = plan.view.ucx_modules(core, r"libuct_(?:cma|knem|xpmem)\.so\.\d+")
    one_copy = [name for name, file in found if file and not plan.view.faults(file)]
    if not one_copy:
        return slow(
            "shared-memory",
            f"the UCX at {core.path} has no libuct_cma, libuct_knem or libuct_xpmem: each message"
            " within a node is copied twice",
            "use a UCX that was built with cma",
        )
    return ready("shared-memory", f"{', '.join(one_copy)} beside {core.path} ({core.origin})")
