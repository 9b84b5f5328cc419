# SPDX-License-Identifier: MIT
"""A node in ReFrame's own words, so that checks of other suites find what they ask for."""

from __future__ import annotations

from collections import Counter
from typing import Any

from busbar.parse.cpulist import parse_cpu_list
from busbar.site.model import ContainerRuntime, NodeType

_VENDOR_FEATURES = {"nvidia": "nvgpu", "amd": "amdgpu"}
# ReFrame has no class for Podman and Enroot.
_PLATFORMS = {"apptainer": "Apptainer", "docker": "Docker", "sarus": "Sarus"}


def gpu_features(node: NodeType) -> list[str]:
    """Return the partition features of a node: ``gpu`` and ``nvgpu`` or ``amdgpu``, and ``pair``.

    Two ranks of a node are a pair unless they have to share its only GPU.
    """
    if not node.gpus:
        return ["pair"]
    alone = node.gpus.count == 1
    return ["gpu", _VENDOR_FEATURES[node.gpus.vendor], *([] if alone else ["pair"])]


def devices(node: NodeType) -> list[dict[str, Any]]:
    """Return the ``devices`` of a partition: the GPUs, and the NICs of each link class."""
    found: list[dict[str, Any]] = []
    if gpus := node.gpus:
        found.append(
            {"type": "gpu", "arch": gpus.arch, "model": gpus.model, "num_devices": gpus.count}
        )
    ports: Counter[str] = Counter()
    for nic in node.nics:
        ports[nic.link_class] += nic.count
    found += [{"type": "nic", "model": name, "num_devices": n} for name, n in ports.items()]
    return found


def processor(node: NodeType) -> dict[str, Any]:
    """Return the ``processor`` of a partition: only the facts that the site states."""
    stated: dict[str, Any] = {
        "num_cpus": node.cores,
        "num_cpus_per_core": node.threads_per_core,
        "num_sockets": node.sockets,
    }
    if node.cores and node.sockets:
        stated["num_cpus_per_socket"] = node.cores // node.sockets
    if node.numa:
        cpus = [parse_cpu_list(domain.cpus) for domain in node.numa]
        stated["topology"] = {"numa_nodes": [hex(sum(1 << cpu for cpu in each)) for each in cpus]}
    return {name: value for name, value in stated.items() if value is not None}


def container_platforms(containers: ContainerRuntime | None) -> list[dict[str, Any]]:
    """Return the ``container_platforms`` of a partition: the site's runtime, if ReFrame has it."""
    name = _PLATFORMS.get(containers.runtime) if containers else None
    return [{"type": name, "default": True}] if name else []
