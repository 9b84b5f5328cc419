# SPDX-License-Identifier: MIT
"""Whether the output is of the requested sizes."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.units import format_bytes


def answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield each size that was not requested."""
    for nbytes in {reading.nbytes for reading in shown.readings} - {*launch.sizes}:
        yield f"{format_bytes(nbytes)} was not requested"
