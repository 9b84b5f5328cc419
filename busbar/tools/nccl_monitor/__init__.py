# SPDX-License-Identifier: MIT
"""What NCCL says of a running job: ncclras, and its Inspector plugin. No check runs them."""

from __future__ import annotations

from busbar.engine.bands import no_bands
from busbar.engine.tool import Programs, Tool, measured
from busbar.tools.nccl_monitor.read import INSPECTOR, RAS, InspectorReader, read_document

TOOL = Tool(
    benches=(RAS, INSPECTOR),
    programs=Programs(),
    reader=InspectorReader,
    document=read_document,
    bands=no_bands,
    answer=lambda launch, shown: (),
    checked=measured,
)
