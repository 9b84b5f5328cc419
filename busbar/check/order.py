# SPDX-License-Identifier: MIT
"""What the process of ReFrame gets after it has loaded the checks."""

from __future__ import annotations

from dataclasses import dataclass

from busbar.check.places import Sweep


@dataclass(frozen=True)
class Order:
    """The checks to run, and where."""

    hashes: tuple[str, ...]
    """ReFrame's hashes."""
    sweep: Sweep | None = None
    """The nodes to test; None leaves the nodes to the scheduler."""
