# SPDX-License-Identifier: MIT
"""The results of detection: the GPUs by a vendor's tools, and the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from busbar.parse.tables import beside
from busbar.site.delivery import Stack
from busbar.site.model import Site

_REMARKS = beside(__file__)
NAME = "detected"
"""The name of the site of a machine that no site describes."""
UNKNOWN = "unknown"
"""The model of GPUs with known links only."""


@dataclass(frozen=True)
class Detected:
    """The site of a machine, and remarks on facts that could not be detected."""

    site: Site
    remarks: tuple[str, ...] = ()
    gpu_remarks: tuple[str, ...] = ()
    """Remarks on the GPUs, which change the expected rates."""
    rdma_listed: bool = False
    """RDMA devices were listed: if the site has none, the machine has none."""
    gpu_tool_failed: tuple[str, ...] = ()
    """Why GPUs cannot be described: a vendor's tool is missing, or reports no usable GPU. If there
    are any messages, a site without GPUs does not mean a machine without GPUs."""


class NumaDomain(NamedTuple):
    """A NUMA domain with its CPUs and the GPUs near it."""

    id: int
    cpus: tuple[int, ...]
    gpus: tuple[int, ...]


def pair_links(counts: Mapping[tuple[int, int], int], link_class: str) -> dict[str, Any]:
    """Return the key ``links`` for GPUs with direct links: how many each pair has."""
    pairs = ((list(pair), count) for pair, count in sorted(counts.items()))
    return {"pairs": [{"between": p, "class": link_class, "count": count} for p, count in pairs]}


def connected(gpus: int, pairs: Iterable[tuple[int, int]]) -> bool:
    """Return whether links lead from each GPU to every other, in any number of steps."""
    group: dict[int, int] = {}
    apart = gpus
    for one, other in pairs:
        first, second = group.setdefault(one, one), group.setdefault(other, other)
        if first != second:
            apart -= 1
            group = {gpu: first if its == second else its for gpu, its in group.items()}
    return apart == 1


def remark(which: str, /, **words: object) -> str:
    """Return a remark of ``detected.yaml``; its text names the ``words``."""
    return str(_REMARKS[which].format(**words))


@dataclass(frozen=True)
class DetectedGpus:
    """The GPUs of a machine as a vendor's tools report them."""

    facts: dict[str, Any]
    """The key ``gpus`` of a node type; empty if the GPUs cannot be used in their present mode."""
    stack: Stack
    family: str
    numa: tuple[NumaDomain, ...] = ()
    remarks: tuple[str, ...] = ()
