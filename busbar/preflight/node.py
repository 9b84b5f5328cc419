# SPDX-License-Identifier: MIT
"""Between ranks of one node: does UCX share memory, and does it copy a message once?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from busbar.preflight.loader import Found
from busbar.preflight.model import Line, Status, ready
from busbar.preflight.plan import ImagePlan

_SHARED = {"all", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"}
_ONE_COPY = re.compile(r"libuct_(?:cma|knem|xpmem)\.so\.\d+")


def node_line(plan: ImagePlan, libraries: Mapping[str, Found | None]) -> Line:
    """``ready`` as well where UCX carries nothing."""
    core = next((f for name, f in libraries.items() if name.startswith("libuct.so") and f), None)
    if core is None or plan.stack == "cray":
        return ready("shared-memory", "messages within a node do not go through UCX")
    chosen = plan.variables.get("UCX_TLS", "all")
    if not chosen.startswith("^") and not _SHARED & set(chosen.split(",")):
        return Line(
            "shared-memory",
            Status.SLOW,
            f"the image sets UCX_TLS={chosen}: ranks of one node share no memory",
            "add sm to UCX_TLS, or unset it",
        )
    directory = core.path.parent / "ucx"
    found = [
        name
        for name in plan.view.names(directory)
        if _ONE_COPY.fullmatch(name)
        and (file := plan.view.find(directory / name))
        and not plan.view.faults(file)
    ]
    if not found:
        return Line(
            "shared-memory",
            Status.SLOW,
            f"the UCX at {core.path} has none of libuct_cma, libuct_knem and libuct_xpmem: every"
            " message within a node is copied twice",
            "take a UCX that was built with cma",
        )
    return ready("shared-memory", f"{', '.join(found)} beside {core.path} ({core.origin})")
