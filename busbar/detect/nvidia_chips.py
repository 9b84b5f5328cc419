# SPDX-License-Identifier: MIT
"""NVIDIA's GPUs: architecture and NVLink by product."""

from __future__ import annotations

import re
from typing import NamedTuple


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
    pcie: int = 0
    """Generation of PCI Express; 0: unknown."""


# CUDA documentation, compute capability of each product; NVIDIA's white papers and data sheets,
# NVLinks of each product. The first that fits counts.
CHIPS = (
    NvidiaChip("Blackwell", r"\bG?B300", "sm_103", "nvlink5", 18, 5),
    NvidiaChip("Blackwell", r"\bG?B[12]00", "sm_100", "nvlink5", 18, 5),
    NvidiaChip("Blackwell", r"\bGB10\b", "sm_121", "", 0, 5),
    NvidiaChip("Blackwell", r"\bThor\b", "sm_110", "", 0, 5),
    NvidiaChip("Blackwell", r"RTX|GeForce", "sm_120", "", 0, 5),
    # China's variants of A100 and H100 have eight links.
    NvidiaChip("Hopper", r"\bH800", "sm_90", "nvlink4", 8, 5),
    NvidiaChip("Hopper", r"", "sm_90", "nvlink4", 18, 5),
    NvidiaChip("Ampere", r"\bA800", "sm_80", "nvlink3", 8, 4),
    NvidiaChip("Ampere", r"\bA30X?\b", "sm_80", "nvlink3", 4, 4),
    NvidiaChip("Ampere", r"\bA100X?", "sm_80", "nvlink3", 12, 4),
    NvidiaChip("Ampere", r"\bOrin\b", "sm_87", "", 0, 4),
    # Four links of 14 GB/s instead of 25: 112.5 GB/s in both directions.
    NvidiaChip(
        "Ampere", r"\bA40\b|\bA(45|50|55|60)00\b|RTX 3090", "sm_86", "nvlink3-bridge", 4, 4
    ),
    NvidiaChip("Ampere", r"", "sm_86", "", 0, 4),
    NvidiaChip("Ada Lovelace", r"", "sm_89", "", 0, 4),
    NvidiaChip("Turing", r"RTX|TITAN", "sm_75", "nvlink2", 2, 3),
    NvidiaChip("Turing", r"", "sm_75", "", 0, 3),
    NvidiaChip("Volta", r"Xavier", "sm_72", "", 0, 3),
    NvidiaChip("Volta", r"", "sm_70", "nvlink2", 6, 3),
    NvidiaChip("Pascal", r"\bP100", "sm_60", "nvlink1", 4, 3),
    NvidiaChip("Pascal", r"", "sm_61", "", 0, 3),
    NvidiaChip("Maxwell", r"", "sm_52", "", 0, 3),
)
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
