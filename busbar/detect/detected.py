# SPDX-License-Identifier: MIT
"""What detection hands on: the GPUs that a vendor's tools tell of, and the whole machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from busbar.site.model import Site, Stack


@dataclass(frozen=True)
class Detected:
    """The site of a machine, and what kept it from being complete."""

    site: Site
    remarks: tuple[str, ...] = ()
    rdma_seen: bool = False
    """RDMA devices were looked for, so that none in the site means none in the machine."""
    gpu_tool_failed: tuple[str, ...] = ()
    """What the tools of a GPU vendor said where they are there but told of no GPU that can be
    used; without GPUs in the site this is no machine without GPUs."""


@dataclass(frozen=True)
class GpuFacts:
    """The part ``gpus`` of a node type, empty where the GPUs cannot be used as they are."""

    facts: dict[str, Any]
    stack: Stack
    family: str
    numa: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...] = ()
    """Domain, its CPUs, the GPUs near it."""
    remarks: tuple[str, ...] = ()
