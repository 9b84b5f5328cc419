# SPDX-License-Identifier: MIT
"""Detect which deliveries are installed."""

from __future__ import annotations

from typing import Any

from busbar.detect.gather import Software
from busbar.site.delivery import Stack

_LANES = ["ucx-1.14", "ucx-current"]


def deliveries(software: Software, stack: Stack) -> list[dict[str, Any]]:
    """Return the deliveries of a site: those that are installed, then the default of the stack.

    The wheels come with Busbar; for AMD GPUs, Spack builds what no wheel has.
    """
    listed: list[dict[str, Any]] = []
    own = [{"kind": "spack" if stack == "rocm" else "wheels", "stack": stack, "lanes": _LANES}]
    features = list(software.features)
    if software.spack_view and own[0]["kind"] != "spack":
        listed.append({"kind": "spack", "stack": stack, "lanes": _LANES, "features": features})
    if software.cray_mpich:
        of_cray: Stack = "host" if stack == "host" else "cray"
        listed.append(_modules(of_cray, "cray-mpich", features))
    elif software.modules and software.mpi:
        listed.append(_modules(stack, software.mpi, features))
    return [*listed, *own]


def _modules(stack: Stack, mpi: str, features: list[str]) -> dict[str, Any]:
    return {"kind": "modules", "stack": stack, "lanes": [mpi], "mpi": mpi, "features": features}
