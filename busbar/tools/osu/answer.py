# SPDX-License-Identifier: MIT
"""Whether an output of OSU is what was requested, and agrees with itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.tool import Contradiction
from busbar.tools.osu.parse import SILENT
from busbar.units import format_bytes

_MORE_COLUMNS = {"-f", "--full", "-z", "--tail-lat"}
_ROW = re.compile(r"\d+\s")


def answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield where test, buffers, settings and sizes differ from the launch."""
    output = shown.facts
    names = {name for name, _ in output.names} - {launch.bench}
    if names:
        yield f"requested {launch.bench}, but {', '.join(sorted(names))} ran"
        return
    if not output.readings:
        return
    on_gpu = "D" in launch.buffers
    if launch.buffers and launch.bench not in SILENT and on_gpu != (output.device != "host"):
        memory = "GPU memory" if on_gpu else "host memory"
        yield f"requested buffers in {memory}, but the title names {output.device}"
    if output.buffers and launch.buffers and output.buffers != launch.buffers:
        yield f"requested buffers {launch.buffers}, but {output.buffers} were used"
    rows = [line.text.split()[1:] for each in output.readings if (line := each.evidence)]
    asked = (2 if launch.bench == "osu_mbw_mr" else 1) + launch.validated
    more = not _MORE_COLUMNS.isdisjoint(launch.command)
    for row in [each for each in rows if len(each) != asked and not more][:1]:
        yield f"a row has {len(row)} values, {asked} were requested"
    for nbytes in sorted({r.nbytes for r in output.readings} - set(launch.sizes))[:1]:
        yield f"{format_bytes(nbytes)} was not requested"


def checked(launch: BenchLaunch, shown: LaunchOutput) -> bool:
    """Return whether ``-c`` passed in every row."""
    rows = [line.split() for line in shown.text if _ROW.match(line)]
    return bool(rows) and all(row[-1] == "Pass" for row in rows)


def contradictions(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    """Yield the first size that is in the table twice, or after a larger one."""
    for a, b in pairwise(output.readings):
        if b.nbytes <= a.nbytes:
            place = "twice" if b.nbytes == a.nbytes else f"after {format_bytes(a.nbytes)}"
            yield Contradiction(f"{format_bytes(b.nbytes)} is in the table {place}", b.evidence)
            return
