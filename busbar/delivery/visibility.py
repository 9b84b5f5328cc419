# SPDX-License-Identifier: MIT
"""Which GPUs a job sees: the checks choose them, so the caller's choice must not reach a job."""

from __future__ import annotations

import os
from itertools import takewhile

from busbar.errors import BusbarError
from busbar.site.model import Site

VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
)
_READ = {"nvidia": VARIABLES[:1], "amd": VARIABLES}
"""Which of them the vendor's own libraries take."""


def clear_visible_devices(site: Site) -> None:
    """Removes from the environment, which jobs inherit, what says which GPUs are seen.

    In another order than the site's, a pair would be judged by the links of another one. Under a
    scheduler a job has what the scheduler sets in it. Without one, ``BusbarError`` is raised where
    GPUs are hidden: others may use them, and the checks need all.
    """
    gpus = site.node_type().gpus
    if site.scheduler == "local" and gpus:
        for name in _READ[gpus.vendor]:
            value = os.environ.get(name)
            if value is not None and _shown(value, gpus.count) < gpus.count:
                raise BusbarError(
                    f"{name}={value} hides GPUs from the checks, which use all {gpus.count} of"
                    f" site {site.name}",
                    where="the environment",
                    hint=f"unset {name}; if others use the GPUs that it hides, wait for them",
                )
    for name in VARIABLES:
        os.environ.pop(name, None)


def _shown(value: str, count: int) -> int:
    """How many GPUs a list shows: at the first entry that names none, CUDA and HIP stop."""

    def names_one(entry: str) -> bool:
        if entry.isdigit():
            return int(entry) < count
        return entry.startswith(("GPU-", "MIG-"))

    return len(set(takewhile(names_one, map(str.strip, value.split(",")))))
