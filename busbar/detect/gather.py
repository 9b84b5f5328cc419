# SPDX-License-Identifier: MIT
"""Asks the machine: runs the tools that are there and reads what the kernel tells."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

_TOOLS: dict[str, tuple[str, ...]] = {
    "nvidia-smi topo": ("nvidia-smi", "topo", "-m"),
    "nvidia-smi nvlink": ("nvidia-smi", "nvlink", "-s"),
    "nvidia-smi -q": ("nvidia-smi", "-q"),
    "rocm-smi": ("rocm-smi", "--showtopo", "--showproductname", "--json"),
    "amd-smi topology": ("amd-smi", "topology", "--json"),
    "amd-smi static": (
        *("amd-smi", "static", "--asic", "--bus", "--vram", "--partition", "--json"),
    ),
    "lstopo": ("lstopo", "--of", "xml"),
    "lstopo-no-graphics": ("lstopo-no-graphics", "--of", "xml"),
    "ibstat": ("ibstat",),
    "fi_info": ("fi_info",),
}
_TIMEOUT_S = 30
_IMDS = "http://169.254.169.254/latest"
_IMDS_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Outputs:
    """What was seen: text by tool, and what kept a tool from answering."""

    text: dict[str, str] = field(default_factory=dict)
    """By the names of `_TOOLS`, ``scontrol``, and ``rate <device>`` for each RDMA device."""
    failed: dict[str, str] = field(default_factory=dict)
    """Tools that are there but failed, with their first words."""
    host: str = ""
    cpus: tuple[int, ...] = ()
    """Logical CPUs that this process may use."""
    instance_type: str | None = None
    rdma_seen: bool = False
    """The list of RDMA devices was looked at, so that an empty one means none."""


def gather(root: Path = Path("/")) -> Outputs:
    """Asks this machine; ``root`` is where its `sys` is."""
    host = socket.gethostname()
    tools = dict(_TOOLS)
    tools["scontrol"] = ("scontrol", "show", "node", host.split(".")[0])
    here = {name: command for name, command in tools.items() if shutil.which(command[0])}
    # All at once: each of them wakes the same driver, which may take it seconds.
    with ThreadPoolExecutor(max_workers=max(len(here), 1)) as pool:
        answers = dict(zip(here, pool.map(_ask, here.values()), strict=True))
    text = {name: said for name, (answered, said) in answers.items() if answered}
    failed = {name: said for name, (answered, said) in answers.items() if not answered}
    for rate in sorted(root.glob("sys/class/infiniband/*/ports/1/rate")):
        text[f"rate {rate.parts[-4]}"] = rate.read_text()
        text[f"layer {rate.parts[-4]}"] = (rate.parent / "link_layer").read_text()
    return Outputs(
        text=text,
        failed=failed,
        host=host,
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        instance_type=_instance_type(root),
        rdma_seen=True,
    )


def _ask(command: tuple[str, ...]) -> tuple[bool, str]:
    """Whether a tool answered, with its output or the reason."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_TIMEOUT_S} s"
    if not done.returncode:
        return True, done.stdout
    said = (done.stderr or done.stdout).strip().splitlines()
    return False, said[0] if said else f"exit status {done.returncode}"


def _instance_type(root: Path) -> str | None:
    """The EC2 instance type by IMDSv2; nobody is asked where the firmware names no Amazon."""
    vendor = root / "sys/class/dmi/id/sys_vendor"
    if not vendor.is_file() or vendor.read_text().strip() != "Amazon EC2":
        return None
    ask = urllib.request.Request(  # noqa: S310 - a fixed address
        f"{_IMDS}/api/token",
        method="PUT",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"},
    )
    try:
        with urllib.request.urlopen(ask, timeout=_IMDS_TIMEOUT_S) as answer:  # noqa: S310
            token = answer.read().decode()
        get = urllib.request.Request(  # noqa: S310 - a fixed address
            f"{_IMDS}/meta-data/instance-type", headers={"X-aws-ec2-metadata-token": token}
        )
        with urllib.request.urlopen(get, timeout=_IMDS_TIMEOUT_S) as answer:  # noqa: S310
            return str(answer.read().decode().strip())
    except (urllib.error.URLError, TimeoutError):
        return None  # a container may not reach the service; everything else is still detected
