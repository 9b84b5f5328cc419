# SPDX-License-Identifier: MIT
"""copybench: an invented benchmark, by which a test shows what a new one needs."""

from __future__ import annotations

from busbar.tools.copybench.answer import answer
from busbar.tools.copybench.bands import bands
from busbar.tools.copybench.parse import CopybenchReader

from busbar.engine.tool import Programs, Tool, measured

TOOL = Tool(
    benches=("copybench",),
    programs=Programs(names=("copybench",)),
    reader=CopybenchReader,
    bands=bands,
    answer=answer,
    checked=measured,
    files=("features.yaml", "messages.yaml", "causes.yaml", "examples.yaml"),
)
