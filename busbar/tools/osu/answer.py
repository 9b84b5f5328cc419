# SPDX-License-Identifier: MIT
"""Whether an output of OSU is what was requested, and agrees with itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.tool import Contradiction
from busbar.parse import numbers
from busbar.tools.osu.parse import SILENT
from busbar.units import format_bytes

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
    if not any("unit" in setting for setting, _ in output.settings):
        yield "the output does not name the unit of its table"
    on_gpu = "D" in launch.buffers
    if launch.buffers and launch.bench not in SILENT and on_gpu != (output.device != "host"):
        memory = "GPU memory" if on_gpu else "host memory"
        yield f"requested buffers in {memory}, but the title names {output.device}"
    if output.buffers and launch.buffers and output.buffers != launch.buffers:
        yield f"requested buffers {launch.buffers}, but {output.buffers} were used"
    yield from _of_settings(launch, output)
    for nbytes in sorted({r.nbytes for r in output.readings} - set(launch.sizes))[:1]:
        yield f"{format_bytes(nbytes)} was not requested"


def _of_settings(launch: BenchLaunch, output: JobOutput) -> Iterator[str]:
    for setting, _ in output.settings:
        if setting.get("datatype", "MPI_CHAR") != "MPI_CHAR":
            yield f"requested type MPI_CHAR, but {setting['datatype']} was used"
        if "pairs" not in setting:
            continue
        pairs, window = numbers.count(setting["pairs"]), numbers.count(setting["window"])
        if pairs * 2 != launch.ranks:
            yield f"requested {launch.ranks // 2} pairs, but {pairs} were used"
        if window != _window(launch.command):
            yield f"requested a window of {_window(launch.command)}, but {window} was used"


def _window(command: Sequence[str]) -> int:
    """OSU's own default is 64."""
    sizes = (value for option, value in pairwise(command) if option in ("-W", "--window-size"))
    return numbers.count(next(filter(numbers.is_whole, sizes), "64"))


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
