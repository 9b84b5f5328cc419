# SPDX-License-Identifier: MIT
"""What ``nvidia-smi`` and ``rocm-smi`` print of a GPU's load, and how to tell their reports."""

from __future__ import annotations

import re

from busbar.parse.messages import Pattern, pattern

TABLE: tuple[Pattern, ...] = (
    # The default table: "|   0   N/A  N/A   1234   C   python3   1024MiB |".
    pattern(
        "gpu.process",
        "MiB |",
        r"^\|\s+(\d{1,18})\s+(?:\S+\s+\S+\s+)?(\d{1,18})\s+(?:C|C\+G|M\+C)\s+(\S.*?)\s+"
        r"(\d{1,18})MiB \|",
    ),
    pattern("gpu.load", "MiB |", r"(\d{1,18})MiB / +(\d{1,18})MiB \|\s+(\d{1,18})%"),
    # --query-gpu=index,utilization.gpu --format=csv
    pattern("gpu.load-csv", " %", r"^(\d{1,18}), (\d{1,18}) %"),
)
_REPORTS = (
    (re.compile(r"=+NVSMI LOG=+"), "nvidia-smi -q"),
    (
        re.compile(r"\s*GPU\d+\s+(?:GPU\d+\s+.*Affinity|(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX)\s)"),
        "nvidia-smi topo -m",
    ),
    (re.compile(r"GPU \d+: .*\(UUID: GPU-"), "nvidia-smi nvlink -s"),
    (re.compile(r"\s*\|? ?NVIDIA-SMI \d"), "nvidia-smi"),
    (re.compile(r"package:Open MPI|ompi:version:|\s+(?:Package|Open MPI): "), "ompi_info"),
    (re.compile(r"# Library version: \d|# Memory domain:"), "ucx_info"),
    (re.compile(r"=+ ROCm System Management Interface"), "rocm-smi"),
)


def parse_report(line: str) -> str | None:
    """The name of the tool whose description of a machine begins with this line."""
    for regex, name in _REPORTS:
        if regex.match(line):
            return name
    return None
