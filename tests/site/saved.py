# SPDX-License-Identifier: MIT
"""Saved outputs of the tools that know a machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from busbar.detect.detected import Detected
from busbar.detect.machine import match

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


def described(found: Detected) -> dict[str, Any]:
    """What was found, by name; ``form`` is how the GPUs are linked."""
    site, node = found.site, found.site.node
    facts: dict[str, Any] = {
        "cores": node.cores,
        "nics": [nic.name for nic in node.nics],
        "classes": [nic.link_class for nic in node.nics],
        "near": [nic.near_gpus for nic in node.nics],
        "provider": site.fabric.provider if site.fabric else "",
        "rails": site.fabric.rails if site.fabric else 0,
        "family": site.family,
        "scheduler": site.scheduler,
        "launcher": site.partitions[0].launcher,
        "partition": site.partitions[0].name,
        "nodes": site.partitions[0].nodes,
        "stack": site.deliveries[0].stack,
        "remarks": found.remarks,
        "match": match(found),
    }
    if gpus := node.gpus:
        facts |= {
            "model": gpus.model,
            "arch": gpus.arch,
            "count": gpus.count,
            "memory": gpus.memory_mib,
            "form": gpus.links and gpus.links.model_dump(exclude_defaults=True),
            "pairs": [pair.between for pair in gpus.links.pairs] if gpus.links else [],
            "host": gpus.host_link.link_class if gpus.host_link else None,
            "multicast": gpus.multicast,
        }
    return facts


def wrong(found: Detected, **expected: Any) -> dict[str, Any]:
    """What was not found as expected."""
    facts = described(found)
    return {name: facts.get(name) for name in expected if facts.get(name) != expected[name]}
