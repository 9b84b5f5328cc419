# SPDX-License-Identifier: MIT
"""The variables that select GPUs: the checks set them, so the caller's must not reach a job.

In another order of GPUs, a pair would be judged by the links of another pair. Under a scheduler, a
job gets what the scheduler sets in it.
"""

from __future__ import annotations

import os
from itertools import takewhile
from typing import TYPE_CHECKING

from busbar.parse.tables import refused

if TYPE_CHECKING:
    from busbar.site.model import Site

VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
)
_READ = {"nvidia": VARIABLES[:1], "amd": VARIABLES}
"""The variables that the libraries of a vendor read."""


def refuse_hidden_gpus(site: Site) -> None:
    """Raise ``BusbarError`` if the environment hides GPUs on a machine without a scheduler.

    Others may use the hidden GPUs, and the checks need all.
    """
    gpus = site.node_type().gpus
    if site.scheduler == "local" and gpus:
        for name in _READ[gpus.vendor]:
            value = os.environ.get(name)
            if value is not None and _shown(value, gpus.count) < gpus.count:
                words = {"name": name, "value": value, "count": gpus.count, "site": site.name}
                raise refused(__file__, "hidden", "the environment", **words)


def without_visible_devices() -> dict[str, str]:
    """Return the environment of this process without these variables."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES}


def _shown(value: str, count: int) -> int:
    """Count the GPUs of a list; CUDA and HIP stop at the first entry that is not a GPU."""

    def names_one(entry: str) -> bool:
        if entry.isdigit():
            return int(entry) < count
        return entry.startswith(("GPU-", "MIG-"))

    return len(set(takewhile(names_one, map(str.strip, value.split(",")))))
