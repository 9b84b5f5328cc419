# SPDX-License-Identifier: MIT
"""What NCCL says of a running job: ncclras. No check runs it."""

from __future__ import annotations

from busbar.engine.bands import no_bands
from busbar.engine.tool import Programs, Tool, measured
from busbar.tools.nccl_monitor.read import RAS, read_document

TOOL = Tool(
    benches=(RAS,),
    programs=Programs(),
    reader=None,
    document=read_document,
    bands=no_bands,
    answer=lambda launch, shown: (),
    checked=measured,
)
