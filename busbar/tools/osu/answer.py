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
from busbar.tools.osu.parse import OLDEST, PAIRS, PRINTED, SILENT
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
    heads = [line for setting, line in output.settings if "unit" in setting]
    first = output.readings[0].evidence
    if not heads or (first and first.is_before(heads[0])):
        yield "the output does not name the unit of its table"
    on_gpu = "D" in launch.buffers
    if launch.buffers and launch.bench not in SILENT and on_gpu != (output.device != "host"):
        memory = "GPU memory" if on_gpu else "host memory"
        yield f"requested buffers in {memory}, but the title names {output.device}"
    if output.buffers and launch.buffers and output.buffers != launch.buffers:
        yield f"requested buffers {launch.buffers}, but {output.buffers} were used"
    yield from _of_version(launch, output)
    yield from _of_settings(launch, output)
    values = (line.text.split()[1] for r in output.readings if (line := r.evidence))
    for value in [each for each in values if numbers.is_whole(each)][:1]:
        yield f"{value} has no decimals, which the tool prints"
    for nbytes in sorted({r.nbytes for r in output.readings} - set(launch.sizes))[:1]:
        yield f"{format_bytes(nbytes)} was not requested"


def _of_version(launch: BenchLaunch, output: JobOutput) -> Iterator[str]:
    """Yield the lines that the version of the output prints and it lacks, or the other way."""
    version = numbers.real_or_nan(".".join((output.version or "").split(".")[:2]))
    if not version >= OLDEST:
        yield f"version {output.version} is older than {OLDEST}, the first one known"
    pair_of_gpus = launch.bench in PAIRS and output.device != "host"
    stated = any("datatype" in setting for setting, _ in output.settings)
    for name, shown, due in (
        ("datatype", stated, True),
        ("buffers", output.buffers, pair_of_gpus),
    ):
        first, always, until, last = PRINTED[name]
        if shown and not first <= version <= last:
            yield f"version {output.version} prints no {name}, but the output names it"
        if due and not shown and always <= version <= until:
            yield f"version {output.version} prints the {name}, but the output lacks it"


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
