# SPDX-License-Identifier: MIT
"""NVIDIA's GPUs: architecture and NVLink by product."""

from __future__ import annotations

import re
from typing import NamedTuple

from busbar.parse.tables import beside


class NvidiaChip(NamedTuple):
    """A group of products with the same chip and NVLinks."""

    architecture: str
    """As ``nvidia-smi -q`` prints it."""
    model: str
    """A regular expression, found in the name of the product."""
    arch: str
    link_class: str
    """Empty: without NVLink."""
    links: int
    """NVLinks of one GPU."""
    pcie: int
    """Generation of PCI Express; 0: unknown."""


CHIPS = tuple(NvidiaChip(*row) for row in beside(__file__))
"""The first that fits counts."""
BRIDGED = re.compile(r"PCI-?E|\bNVL\b|RTX|GeForce|Quadro|TITAN|\bA[34]0\b", re.IGNORECASE)
"""Cards whose NVLinks are bridges between neighbours, never a switch."""
FAMILY = "nvlink4"
"""The family of NVIDIA's GPUs with NVLink of any generation, or on PCI Express."""


def by_links(pair: int, gpu: int) -> NvidiaChip:
    """Return the chip to assume for a number of NVLinks of a pair, and of a GPU as a whole.

    Generations share these numbers: the older one is assumed.
    """
    older = sorted(
        (chip for chip in CHIPS if chip.links and chip.arch >= "sm_70"), key=lambda c: c.arch
    )
    same = [chip for count in (gpu, pair) for chip in older if chip.links == count]
    return next(iter(same or [chip for chip in older if chip.links >= min(gpu, 18)]))
