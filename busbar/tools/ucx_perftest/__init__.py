# SPDX-License-Identifier: MIT
"""ucx_perftest: UCX without MPI, between two processes."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.bands import between_two
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.tool import Programs, Tool, measured
from busbar.site.delivery import Delivery
from busbar.site.model import Site
from busbar.tools.ucx_perftest.parse import FINAL, UcxReader, rows
from busbar.units import format_bytes


def _declared(site: Site, delivery: Delivery) -> Iterator[str]:
    by_spack = delivery.kind == "spack" and delivery.mpi == "openmpi"
    # On Slingshot a stack has no UCX, and its lane the name of its MPI.
    if delivery.kind == "wheels" or (by_spack and delivery.lanes[0].startswith("ucx-")):
        yield "ucx"


def _answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    text = shown.text
    table = [*rows(text)]
    if not table:
        return
    if len(table) != len([*rows(shown.until_exit)]):
        yield "a reading follows the exit status"
    if (ends := sum(FINAL in line for line in text)) != 1:
        yield f"the table has {ends} final rows"
    for row in table if launch.sizes else ():
        if not row.agrees(launch.sizes[0]):
            yield f"{row.gb_per_s:.4g} GB/s is not {format_bytes(launch.sizes[0])} over its time"
            return


TOOL = Tool(
    benches=("ucx_perftest",),
    programs=Programs(names=("ucx_perftest",)),
    declared=_declared,
    reader=UcxReader,
    bands=lambda run, reading: [between_two(run, reading)],
    answer=_answer,
    checked=measured,
    files=("features.yaml", "stated.yaml", "messages.yaml", "causes.yaml", "examples.yaml"),
)
