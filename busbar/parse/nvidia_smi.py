# SPDX-License-Identifier: MIT
"""GPU processes and load that ``nvidia-smi`` prints, and the first lines of machine reports."""

from __future__ import annotations

import re

from busbar.parse.messages import table

TABLE = table("nvidia_smi")
_REPORTS = (
    (re.compile(r"=+NVSMI LOG=+"), "nvidia-smi -q"),
    (
        re.compile(r"\s*GPU\d+\s+(?:GPU\d+\s+.*Affinity|(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX)\s)"),
        "nvidia-smi topo -m",
    ),
    (re.compile(r"GPU \d+: .*\(UUID: GPU-"), "nvidia-smi nvlink -s"),
    (re.compile(r"\s*\|? ?NVIDIA-SMI \d"), "nvidia-smi"),
    (re.compile(r"package:Open MPI|ompi:version:|\s+(?:Package|Open MPI): "), "ompi_info"),
    (re.compile(r"\s*# (?:Library version: \d|Memory domain:)"), "ucx_info"),
    (re.compile(r"=+ ROCm System Management Interface"), "rocm-smi"),
)

TRIGGERS = (
    "=NVSMI LOG",
    r"GPU\d+[ \t]",
    r"UUID: GPU-",
    "NVIDIA-SMI",
    "Package: |package:Open MPI|ompi:version:|Open MPI: ",
    "Library version: |Memory domain:",
    "ROCm System Management Interface",
)
"""Texts in the first lines of a report, for `busbar.parse.triggers`."""


def parse_report(line: str) -> str | None:
    """Return the tool whose report on a machine begins with this line; None for other lines."""
    return next((name for regex, name in _REPORTS if regex.match(line)), None)
