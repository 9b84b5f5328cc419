# SPDX-License-Identifier: MIT
"""Run the tools of this machine and read the facts of its kernel."""

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

from busbar.detect.pci import compute_gpus, without_tool

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
    """The output of each tool, and the errors of tools that failed."""

    text: dict[str, str] = field(default_factory=dict)
    """By the names of `_TOOLS`, ``scontrol``, and ``rate <device>`` for each RDMA device."""
    failed: dict[str, str] = field(default_factory=dict)
    """The first error line of each installed tool that failed."""
    host: str = ""
    cpus: tuple[int, ...] = ()
    """Logical CPUs that this process may use."""
    instance_type: str | None = None
    unseen_gpus: tuple[str, ...] = ()
    """One sentence for each vendor whose GPUs are there without a tool that describes them."""
    rdma_listed: bool = False
    """RDMA devices were listed, so none in ``text`` means that there are none."""


def gather(root: Path = Path("/")) -> Outputs:
    """Run the installed tools; ``root`` is the directory that contains `sys` and `dev`."""
    host = socket.gethostname()
    tools = dict(_TOOLS)
    tools["scontrol"] = ("scontrol", "show", "node", host.split(".")[0])
    installed = {name: command for name, command in tools.items() if shutil.which(command[0])}
    # In parallel: each tool initializes the same driver, which may take seconds.
    with ThreadPoolExecutor(max_workers=max(len(installed), 1)) as pool:
        results = dict(zip(installed, pool.map(_run, installed.values()), strict=True))
    text = {name: output for name, (succeeded, output) in results.items() if succeeded}
    failed = {name: output for name, (succeeded, output) in results.items() if not succeeded}
    for rate in sorted(root.glob("sys/class/infiniband/*/ports/1/rate")):
        text[f"rate {rate.parts[-4]}"] = rate.read_text()
        text[f"layer {rate.parts[-4]}"] = (rate.parent / "link_layer").read_text()
    return Outputs(
        text=text,
        failed=failed,
        host=host,
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        instance_type=_instance_type(root),
        unseen_gpus=tuple(
            without_tool(compute_gpus(root), frozenset(c[0] for c in installed.values()))
        ),
        rdma_listed=True,
    )


def _run(command: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether a tool succeeded, and its output or error."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"timed out after {_TIMEOUT_S} s"
    if not done.returncode:
        return True, done.stdout
    lines = (done.stderr or done.stdout).strip().splitlines()
    return False, lines[0] if lines else f"exit status {done.returncode}"


def _instance_type(root: Path) -> str | None:
    """Request the EC2 instance type by IMDSv2 if the firmware vendor is Amazon; else None."""
    vendor = root / "sys/class/dmi/id/sys_vendor"
    if not vendor.is_file() or vendor.read_text().strip() != "Amazon EC2":
        return None
    request = urllib.request.Request(  # noqa: S310 - a fixed address
        f"{_IMDS}/api/token",
        method="PUT",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_IMDS_TIMEOUT_S) as reply:  # noqa: S310
            token = reply.read().decode()
        request = urllib.request.Request(  # noqa: S310 - a fixed address
            f"{_IMDS}/meta-data/instance-type", headers={"X-aws-ec2-metadata-token": token}
        )
        with urllib.request.urlopen(request, timeout=_IMDS_TIMEOUT_S) as reply:  # noqa: S310
            return str(reply.read().decode().strip())
    except (urllib.error.URLError, TimeoutError):
        return None  # a container may not reach the service
