# SPDX-License-Identifier: MIT
"""GPU processes and load that ``nvidia-smi`` prints, and the first lines of machine reports."""

from __future__ import annotations

import re

from busbar.parse.messages import Pattern, pattern

TABLE: tuple[Pattern, ...] = (
    # The default table: "|   0   N/A  N/A   1234   C   python3   1024MiB |".
    pattern(
        "gpu.process",
        "MiB |",
        r"^\|\s+(?P<gpu>\d{1,18})\s+(?:\S+\s+\S+\s+)?(?P<pid>\d{1,18})\s+(?:C|C\+G|M\+C)\s+"
        r"(?P<program>\S.*?)\s+(?P<mib>\d{1,18})MiB \|",
    ),
    pattern(
        "gpu.load",
        "MiB |",
        r"(?P<used>\d{1,18})MiB / +(?P<total>\d{1,18})MiB \|\s+(?P<percent>\d{1,18})%",
    ),
    # --query-gpu=index,utilization.gpu --format=csv
    pattern("gpu.load-csv", " %", r"^(?P<gpu>\d{1,18}), (?P<percent>\d{1,18}) %"),
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
    """Return the tool whose report on a machine begins with this line; None for other lines."""
    for regex, name in _REPORTS:
        if regex.match(line):
            return name
    return None
