# SPDX-License-Identifier: MIT
"""nccl-tests and rccl-tests: collectives of NCCL and RCCL."""

from __future__ import annotations

import re
from pathlib import PurePath

from busbar.engine.bands import collectives
from busbar.engine.identify import gpu_models
from busbar.engine.job_output import JobOutput
from busbar.engine.run import Run
from busbar.engine.tool import Programs, Tool
from busbar.expect import COLLECTIVES
from busbar.tools.nccl_tests.answer import answer, checked, contradictions, lone
from busbar.tools.nccl_tests.document import read_document
from busbar.tools.nccl_tests.read import TOOL_NAME, NcclReader

_RCCL_TESTS = "rccl-tests"


def _harness(known: Run, output: JobOutput) -> str | None:
    gpus = known.site.node_type(known.partition).gpus if known.site else None
    if gpus:
        return _RCCL_TESTS if gpus.vendor == "amd" else TOOL_NAME
    models = gpu_models(output)
    if not models:
        return None
    return _RCCL_TESTS if any("AMD" in model for model in models) else TOOL_NAME


def _nodes(output: JobOutput) -> int | None:
    """The nodes of the devices that it lists; a description of the machine lists others."""
    return None if output.reports else len({each.host for each in output.devices.values()})


def _operation(output: JobOutput) -> str | None:
    """The collective in the name of a file."""
    files = [re.sub(r"[^a-z]+", "_", PurePath(file).name.lower()) for file in output.files]
    return next((each for words in files for each in COLLECTIVES if each in words), None)


TOOL = Tool(
    benches=COLLECTIVES,
    outputs=(TOOL_NAME,),
    programs=Programs(
        names=tuple(f"{name}_perf" for name in COLLECTIVES),
        pattern="*_perf",
        places=("libexec/nccl-tests", "libexec/rccl-tests"),
    ),
    reader=NcclReader,
    document=read_document,
    bands=collectives,
    answer=answer,
    checked=checked,
    contradictions=contradictions,
    lone=lone,
    harness=_harness,
    nodes=_nodes,
    operation=_operation,
    collective=True,
    files=("features.yaml", "stated.yaml", "messages.yaml", "causes.yaml", "examples.yaml"),
)
