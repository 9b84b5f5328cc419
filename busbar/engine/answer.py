# SPDX-License-Identifier: MIT
"""Whether an output answers the question of its launch, and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from busbar.engine.consistency import contradictions
from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Reading
from busbar.expect import COLLECTIVES
from busbar.parse import fabtests, nccl_options, numbers, ucx_perftest
from busbar.parse.events import Check, Idle, Rank, Start
from busbar.parse.launch import parse_exit_status
from busbar.units import MIB, format_bytes

_ROUNDED = 0.01
"""NCCL rounds a message down to what divides among the ranks; by less than this share."""
_ALIGNED = 128
"""Bytes per rank by which it rounds a small message at most."""
_SILENT = ("osu_mbw_mr", "osu_multi_lat")
"""These print the same title for buffers of the host and of GPUs."""

_DETOUR = "_through_host"
"""So ``memory`` names a pair of GPUs that cannot read each other's memory."""


def differences(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield where the output differs from the question."""
    outputs = [shown.facts]
    if shown.report and shown.report.facts:
        outputs.append(shown.report.facts)
    yield from late_readings(shown)
    for output in outputs:
        for contradiction in contradictions(output, launch.bench, launch.ranks):
            yield contradiction.text
        if launch.bench in COLLECTIVES:
            yield from _of_nccl_tests(launch, output)
    if launch.bench.startswith("osu_"):
        yield from _of_osu(launch, shown.facts)
    elif launch.bench == "ucx_perftest":
        yield from _of_ucx_perftest(launch, shown.text)
    elif launch.bench in ("fi_pingpong", "fi_rma_bw"):
        yield from _of_fabtests(launch, shown.text)
    elif launch.operations:
        yield from _of_own_program(launch, shown.facts)


def late_readings(shown: LaunchOutput) -> Iterator[str]:
    """Yield that readings follow the end of the output, which its process prints last.

    The launcher can mix the lines of ranks, but not those of one rank: each rank of ``gpu_aware``
    prints its readings, then that it is idle.
    """
    facts = shown.facts
    own = facts.files[0] if facts.files else ""
    exit_line = len(_until_exit(shown.text)) + 1
    ends = [facts.finished, facts.out_of_bounds.evidence if facts.out_of_bounds else None]
    end = min((line.line for line in ends if line and line.file == own), default=exit_line)
    idle = {rank.rank: line.line for rank, line in facts.events_of(Idle)}
    last_idle = max(idle.values(), default=0)
    lines = [(each.evidence, idle.get(each.source or 0, end)) for each in facts.readings]
    lines += [(line, max(last_idle, end)) for _, line in facts.events_of(Check)]
    for line, last in lines:
        if line and line.file == own and line.line > min(last, exit_line):
            yield f"line {line.line} is a reading after the end of the output"
            return


def _until_exit(text: Sequence[str]) -> Sequence[str]:
    exits = (at for at, line in enumerate(text) if parse_exit_status(line) is not None)
    return text[: next(exits, len(text))]


# ---- nccl-tests and rccl-tests
def _of_nccl_tests(launch: BenchLaunch, output: JobOutput) -> Iterator[str]:
    if output.tool != "nccl-tests":
        return  # without a table the readings are missing, which is another assertion's
    names = {name for name, _ in output.names} - {launch.bench}
    if names:
        yield f"requested {launch.bench}, but {', '.join(sorted(names))} ran"
    asked = nccl_options.parse_options(launch.command[1:])
    yield from _of_rows(asked, launch, output)
    yield from _of_sizes(asked, launch, output)
    if output.parameters:
        yield from _of_parameters(asked, launch, output.parameters[0], output.max_bytes)
    ranks = {device.rank for device in output.devices.values()}
    if output.files == [launch.json]:
        return
    if ranks != set(range(launch.ranks)):
        yield f"the tool lists {len(ranks)} GPUs for {launch.ranks} ranks"
    if not output.parameters:
        yield "the output has no line with the parameters of the tool"


def _of_rows(asked: nccl_options.Options, launch: BenchLaunch, output: JobOutput) -> Iterator[str]:
    for row, _ in output.rows:
        size = format_bytes(row.nbytes)
        if asked.type not in (row.type, "all"):
            yield f"{size}: requested type {asked.type}, but {row.type} was measured"
            return
        if row.redop not in (asked.redop, "none") and asked.redop != "all":
            yield f"{size}: requested operator {asked.redop}, but {row.redop} was measured"
            return
        if launch.bench == "broadcast" and row.root not in (asked.root, None):
            yield f"{size}: requested root {asked.root}, but {row.root} was measured"
            return


def _of_sizes(
    asked: nccl_options.Options, launch: BenchLaunch, output: JobOutput
) -> Iterator[str]:
    sizes = asked.sizes or launch.sizes
    rows = [row for row, _ in output.rows]
    least = min(sizes, default=0)
    for row in rows:
        if not asked.sizes and row.nbytes < least:
            continue
        if not any(_is_size(row.nbytes, size, launch.ranks) for size in sizes):
            yield f"{format_bytes(row.nbytes)} was not requested"
            return
    repeated = Counter((r.nbytes, r.type, r.redop, r.root) for r in rows if r.nbytes >= MIB)
    for (nbytes, *_), count in repeated.items():
        if count != asked.cycles:
            yield f"{format_bytes(nbytes)} is in the output {count} times, not {asked.cycles}"
            return


def _is_size(nbytes: int, size: int, ranks: int) -> bool:
    return size * (1 - _ROUNDED) - _ALIGNED * ranks <= nbytes <= size


def _of_parameters(
    asked: nccl_options.Options,
    launch: BenchLaunch,
    stated: nccl_options.Parameters,
    most: int | None,
) -> Iterator[str]:
    least = 1 if launch.validated and not asked.check else asked.check
    pairs = (
        ("threads", asked.threads, stated.threads),
        ("GPUs per thread", asked.gpus, stated.gpus),
        ("smallest size", asked.min_bytes, stated.min_bytes),
        # The tool lowers it to what fits into memory, and says so in another line.
        ("largest size", asked.max_bytes, stated.max_bytes),
        ("factor", asked.factor, stated.factor),
        ("iterations", asked.iterations, stated.iterations),
        ("warm-up iterations", asked.warmup, stated.warmup),
        ("validation", least, stated.check),
        ("aggregated iterations", asked.aggregated, stated.aggregated),
        # Not every version prints the number of launches of a graph.
        ("graph", None if asked.graph else 0, stated.graph),
    )
    for name, wanted, printed in pairs:
        if wanted is not None and printed is not None and wanted != printed:
            yield f"{name}: requested {wanted}, but {printed} was used"


# ---- OSU
def _of_osu(launch: BenchLaunch, output: JobOutput) -> Iterator[str]:
    names = {name for name, _ in output.names} - {launch.bench}
    if names:
        yield f"requested {launch.bench}, but {', '.join(sorted(names))} ran"
        return
    if not output.readings:
        return
    if not any(setting.unit for setting, _ in output.settings):
        yield "the output does not name the unit of its table"
    on_gpu = "D" in launch.buffers
    if launch.buffers and launch.bench not in _SILENT and on_gpu != (output.device != "host"):
        memory = "GPU memory" if on_gpu else "host memory"
        yield f"requested buffers in {memory}, but the title names {output.device}"
    if output.buffers and launch.buffers and output.buffers != launch.buffers:
        yield f"requested buffers {launch.buffers}, but {output.buffers} were used"
    for setting, _ in output.settings:
        if setting.datatype not in (None, "MPI_CHAR"):
            yield f"requested type MPI_CHAR, but {setting.datatype} was used"
        if setting.pairs is not None and setting.pairs * 2 != launch.ranks:
            yield f"requested {launch.ranks // 2} pairs, but {setting.pairs} were used"
        if setting.window is not None and setting.window != _window(launch.command):
            yield f"requested a window of {_window(launch.command)}, but {setting.window} was used"
    yield from _strange(launch, output.readings)


def _window(command: Sequence[str]) -> int:
    """OSU's own default is 64."""
    for option, value in pairwise(command):
        if option in ("-W", "--window-size") and numbers.is_whole(value):
            return numbers.count(value)
    return 64


def _strange(launch: BenchLaunch, readings: Sequence[Reading]) -> Iterator[str]:
    strange = sorted({r.nbytes for r in readings} - set(launch.sizes))
    if strange:
        yield f"{format_bytes(strange[0])} was not requested"


# ---- pairs without MPI
def _of_ucx_perftest(launch: BenchLaunch, text: Sequence[str]) -> Iterator[str]:
    row = ucx_perftest.final_row(text)
    if row is None:
        return
    if not any(ucx_perftest.is_title(line) for line in text):
        yield "the output does not name the units of its table"
    if row != ucx_perftest.final_row(_until_exit(text)):
        yield "a reading follows the exit status"
    asked = _option(launch.command, "-n")
    if asked and str(row.iterations) != asked:
        yield f"requested {asked} iterations, but {row.iterations} ran"
    if launch.sizes and not row.agrees(launch.sizes[0]):
        yield f"{row.gb_per_s:.4g} GB/s is not {format_bytes(launch.sizes[0])} over its time"


def _option(command: Sequence[str], name: str) -> str:
    return next((b for a, b in pairwise(command) if a == name), "")


def _of_fabtests(launch: BenchLaunch, text: Sequence[str]) -> Iterator[str]:
    rows = fabtests.rows(text)
    if rows != fabtests.rows(_until_exit(text)):
        yield "a reading follows the exit status"
    asked = _option(launch.command, "-I")
    for row in rows:
        if launch.sizes and row.nbytes not in launch.sizes:
            yield f"{format_bytes(row.nbytes)} was not requested"
        if asked and row.sent is not None and str(row.sent) != asked:
            yield f"requested {asked} iterations, but {row.sent} ran"
        if not row.agrees:
            yield f"{row.gb_per_s:.4g} GB/s is not {format_bytes(row.nbytes)} over its time"
    if len(rows) > 1:
        yield f"the table has {len(rows)} rows, not one"


# ---- our own programs
def _of_own_program(launch: BenchLaunch, output: JobOutput) -> Iterator[str]:
    starts = [start for start, _ in output.events_of(Start)]
    yield from _of_starts(launch, output, starts)
    ranks = sorted(rank.rank for rank, _ in output.events_of(Rank))
    if ranks and ranks != list(range(launch.ranks)):
        yield f"ranks {', '.join(map(str, ranks))} say where they run, of {launch.ranks}"
    for reason, line in output.malformed[:1]:
        yield f"line {line.line} is not a line of {launch.bench}: {reason}"
    yield from _of_operations(launch, output)


def _of_starts(launch: BenchLaunch, output: JobOutput, starts: Sequence[Start]) -> Iterator[str]:
    for start in starts:
        if start.program != launch.bench:
            yield f"requested {launch.bench}, but {start.program} ran"
        if {start.ranks, start.asked_ranks} != {launch.ranks}:
            yield f"requested {launch.ranks} ranks, but {start.ranks} ran"
        on_gpu = launch.gpus or any("D" in reading.buffers for reading in output.readings)
        if on_gpu and start.backend == "host":
            yield "requested GPUs, but the program used none"
    if output.readings and len(starts) != 1:
        yield f"the program started {len(starts)} times"
    for statistic in {start.statistic for start in starts if start.statistic}:
        yield f"{launch.bench} has one statistic only, the output names the {statistic}"


def _of_operations(launch: BenchLaunch, output: JobOutput) -> Iterator[str]:
    asked = Counter((operation, size) for operation in launch.operations for size in launch.sizes)
    read = Counter(
        ((r.operation.removesuffix(_DETOUR), r.source, r.target), r.nbytes)
        for r in output.readings
    )
    for (operation, source, target), nbytes in asked - read:
        pair = "" if source is None else f" {source}->{target}"
        yield f"{operation}{pair}: no reading at {format_bytes(nbytes)}"
        return
    for (operation, _, _), nbytes in read - asked:
        yield f"{operation} at {format_bytes(nbytes)} was not requested"
        return
