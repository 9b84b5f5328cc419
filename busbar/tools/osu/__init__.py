# SPDX-License-Identifier: MIT
"""OSU micro-benchmarks: MPI between ranks, and NCCL or RCCL where built with them."""

from __future__ import annotations

from busbar.engine.job_output import JobOutput
from busbar.engine.tool import Programs, Tool
from busbar.tools.osu.answer import answer, checked, contradictions
from busbar.tools.osu.bands import OSU_COLLECTIVES, bands, derived
from busbar.tools.osu.parse import PAIRS, OsuReader


def _ranks(output: JobOutput) -> int | None:
    return 2 if output.tool in PAIRS and output.readings else None


def _buffers(output: JobOutput) -> str:
    """``H D`` and the like from the command line: version 7.4 does not print them."""
    for command, _ in output.commands:
        kinds = command.arguments[-2:]
        if len(kinds) == 2 and set(kinds) <= {"D", "H"}:
            return " ".join(kinds)
    return ""


TOOL = Tool(
    benches=("osu_*",),
    outputs=("osu",),
    programs=Programs(
        names=(*PAIRS, "osu_mbw_mr", *OSU_COLLECTIVES),
        pattern="osu_*",
        places=("libexec/osu-micro-benchmarks/mpi/**",),
    ),
    reader=OsuReader,
    bands=bands,
    answer=answer,
    checked=checked,
    contradictions=contradictions,
    derived=derived,
    ranks=_ranks,
    buffers=_buffers,
    pairs=PAIRS,
    between_two=True,
    files=("features.yaml", "stated.yaml"),
)
