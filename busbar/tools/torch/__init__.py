# SPDX-License-Identifier: MIT
"""Our own script ``torch_collectives``: collectives through PyTorch."""

from __future__ import annotations

from functools import partial

from busbar.engine.bands import collectives
from busbar.engine.own_programs import answer_operations, contradictions
from busbar.engine.tool import Programs, Tool, measured
from busbar.expect import COLLECTIVES
from busbar.units import GIB, MIB, option_bytes

SIZES = (16 * MIB, 256 * MIB, GIB)


def options(ranks: int) -> tuple[str, ...]:
    """Return what it is asked to measure: every collective at each size."""
    sizes = ",".join(map(option_bytes, SIZES))
    return ("--ranks", str(ranks), "--collectives", ",".join(COLLECTIVES), "--sizes", sizes)


TOOL = Tool(
    benches=("torch_collectives",),
    programs=Programs(),
    reader=None,
    bands=collectives,
    answer=partial(answer_operations, "busbw", {}),
    checked=measured,
    contradictions=contradictions,
    harness=lambda known, output: "pytorch",
    collective=True,
    files=("features.yaml", "stated.yaml"),
)
