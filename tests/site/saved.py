# SPDX-License-Identifier: MIT
"""Saved outputs of the tools that know a machine."""

from __future__ import annotations

import re
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def text(name: str) -> str:
    return (DATA / name).read_text()


def detect_text(name: str) -> str:
    return text(f"detect/{name}")


def h200_outputs() -> dict[str, str]:
    return {
        "nvidia-smi topo": text("h200x4/nvidia-smi-topo.log"),
        "nvidia-smi nvlink": text("h200x4/nvlink.log"),
        "nvidia-smi -q": text("h200x4/nvidia-smi-q-gpu0.log"),
    }


def inventory(model: str, architecture: str, memory_mib: int, count: int) -> str:
    """``nvidia-smi -q`` of equal GPUs, in the form of the synthetic report."""
    report = detect_text("nvidia-smi-q-mig-synthetic.txt").replace("Enabled", "Disabled")
    head, one = re.split(r"(?=^GPU 00000000:)", report, flags=re.MULTILINE)[:2]
    one = one.replace("NVIDIA A100-SXM4-40GB", model).replace("Ampere", architecture)
    one = one.replace("40960", str(memory_mib))
    gpus = [one.replace("07:00.0", f"{0x10 + index:02x}:00.0") for index in range(count)]
    return re.sub(r"(Attached GPUs\s+:) \d+", rf"\1 {count}", head) + "".join(gpus)
