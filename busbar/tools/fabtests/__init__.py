# SPDX-License-Identifier: MIT
"""fi_pingpong and the tests of fabtests: libfabric without MPI, between two processes."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.bands import port
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Reading
from busbar.engine.tool import Programs, Tool, measured
from busbar.site.delivery import Delivery
from busbar.site.model import Site
from busbar.tools.fabtests.parse import rows
from busbar.units import format_bytes


def _declared(site: Site, delivery: Delivery) -> Iterator[str]:
    if site.fabric and site.fabric.provider in ("efa", "cxi") and delivery.kind != "image":
        yield "libfabric"  # its tests come with the provider


def _answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    table = rows(shown.text)
    if table != rows(shown.until_exit):
        yield "a reading follows the exit status"
    if lost := [format_bytes(row.nbytes) for row in table if not row.all_arrived]:
        yield f"messages from {', '.join(lost)} were lost"
    asked = launch.option("-I")
    for row in table:
        if launch.sizes and row.nbytes not in launch.sizes:
            yield f"{format_bytes(row.nbytes)} was not requested"
        if asked and row.sent is not None and str(row.sent) != asked:
            yield f"requested {asked} iterations, but {row.sent} ran"
        if not row.agrees:
            yield f"{row.gb_per_s:.4g} GB/s is not {format_bytes(row.nbytes)} over its time"
    if len(table) > 1:
        yield f"the table has {len(table)} rows, not one"


def _readings(launch: BenchLaunch, shown: LaunchOutput) -> list[Reading]:
    # The rate of the launch that checks the data is the rate of checking.
    return [
        Reading("bw", row.nbytes, row.gb_per_s, operation=f"{launch.bench} {launch.option('-p')}")
        for row in rows(shown.text)
        if row.nbytes in launch.sizes
    ]


TOOL = Tool(
    benches=("fi_pingpong", "fi_rma_bw"),
    programs=Programs(names=("fi_pingpong", "fi_rma_bw"), system="/opt/amazon/efa/bin"),
    declared=_declared,
    reader=None,  # nothing but a check reads these tables
    bands=lambda run, reading: [port(run, reading)],
    answer=_answer,
    of_launch=_readings,
    checked=measured,
    files=("features.yaml",),
)
