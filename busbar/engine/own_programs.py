# SPDX-License-Identifier: MIT
"""Whether the events of our own programs are what was requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.tool import Contradiction
from busbar.parse.events import Check, End, Idle, Rank, Reading, Start
from busbar.units import format_bytes

_CLOCK_MARGIN = 0.01
"""Share by which two clocks of a machine may differ: NTP slews one of them by 0.0005 at most."""

_DETOUR = "_through_host"
"""So ``memory`` names a pair of GPUs that cannot read each other's memory."""


def answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield where the events of one of our own programs are not those of the launch."""
    output = shown.facts
    starts = [start for start, _ in output.events_of(Start)]
    yield from _of_starts(launch, output, starts)
    ranks = sorted(rank.rank for rank, _ in output.events_of(Rank))
    if ranks and ranks != list(range(launch.ranks)):
        yield f"ranks {', '.join(map(str, ranks))} say where they run, of {launch.ranks}"
    for reason, line in output.malformed[:1]:
        yield f"line {line.line} is not a line of {launch.bench}: {reason}"
    yield from _of_operations(launch, output)


def contradictions(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    """Yield a clock that is not the kernel's, and the first message that nothing compared."""
    clocks = [(idle.clock_ratio, line) for idle, line in output.events_of(Idle)]
    clocks += [(end.clock_ratio, line) for end, line in output.events_of(End)]
    for ratio, evidence in clocks:
        if ratio is not None and not abs(ratio - 1) < _CLOCK_MARGIN:
            text = f"the clock of the readings ran at {ratio:.3g} times the kernel's"
            yield Contradiction(text, evidence)
            break
    compared = [
        *((c.messages, c.operation, c.nbytes, line) for c, line in output.events_of(Check)),
        *((r.verified, r.metric, r.nbytes, line) for r, line in output.events_of(Reading)),
    ]
    for messages, name, nbytes, evidence in compared:
        if messages == 0:
            text = f"no message of the {name} at {format_bytes(nbytes)} was compared"
            yield Contradiction(text, evidence)
            break


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
