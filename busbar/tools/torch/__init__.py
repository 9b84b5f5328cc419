# SPDX-License-Identifier: MIT
"""Our own script ``torch_collectives``: collectives through PyTorch."""

from __future__ import annotations

from busbar.engine.bands import collectives
from busbar.engine.own_programs import answer, contradictions
from busbar.engine.tool import Feature, Programs, Tool, measured

TOOL = Tool(
    benches=("torch_collectives",),
    programs=Programs(),
    features={
        "torch": Feature(
            "PyTorch",
            "PyTorch",
            "`BUSBAR_TORCH_PYTHON`, the Python of Busbar, or `python3` on PATH",
            "`pip install torch` for one of these",
            program="torch",
        )
    },
    reader=None,
    bands=collectives,
    answer=answer,
    checked=measured,
    contradictions=contradictions,
    harness=lambda known, output: "pytorch",
    collective=True,
)
