# SPDX-License-Identifier: MIT
"""Whether the events of our own programs are what was requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Reading
from busbar.engine.tool import Contradiction
from busbar.parse.events import CLOCK_MARGIN, Check, End, Idle, Rank, Start
from busbar.parse.tables import beside
from busbar.units import format_bytes

_VERSIONS: dict[str, list[str]] = beside(__file__)
_DETOUR = "_through_host"
"""So a program names a pair of GPUs that cannot read each other's memory."""


class Wanted(NamedTuple):
    """A reading that is requested."""

    kind: str
    operation: str
    source: int | None
    target: int | None
    buffers: str
    nbytes: int

    @classmethod
    def of(cls, reading: Reading, *, named: bool) -> Wanted:
        """Return what a reading measures; ``named``: whether requests name kind and buffers."""
        kind, buffers = (reading.kind, reading.buffers) if named else ("", "")
        operation = reading.operation.removesuffix(_DETOUR)
        return cls(kind, operation, reading.source, reading.target, buffers, reading.nbytes)

    def __str__(self) -> str:
        what = self.operation or ("latency" if self.kind == "latency_us" else "bandwidth")
        pair = "" if self.source is None else f" {self.source}->{self.target}"
        return f"{what}{pair}{self.buffers and ' '}{self.buffers}"


def answer(
    launch: BenchLaunch, shown: LaunchOutput, wanted: Counter[Wanted] | None = None
) -> Iterator[str]:
    """Yield where the events of our own program do not match the launch.

    ``wanted`` are the requested readings; without it, the operations of the launch decide.
    """
    output = shown.facts
    starts = [start for start, _ in output.events_of(Start)]
    yield from _of_starts(launch, output, starts)
    ranks = sorted(rank.rank for rank, _ in output.events_of(Rank))
    if ranks != list(range(launch.ranks)) and (ranks or not launch.placed):
        yield f"of {launch.ranks} ranks {', '.join(map(str, ranks)) or 'none'} says where it runs"
    for reason, line in output.malformed[:1]:
        yield f"line {line.line} is not a line of {launch.bench}: {reason}"
    if len(output.events_of(End)) > 1:
        yield f"the program ended {len(output.events_of(End))} times"
    if wanted is None:
        for statistic in {start.statistic for start in starts if start.statistic}:
            yield f"{launch.bench} has only one statistic, but the output names the {statistic}"
    yield from _of_readings(launch, output, wanted)


def _of_readings(
    launch: BenchLaunch, output: JobOutput, wanted: Counter[Wanted] | None
) -> Iterator[str]:
    named = wanted is not None
    if wanted is None:
        wanted = Counter(
            Wanted("", *operation, "", size)
            for operation in launch.operations
            for size in launch.sizes
        )
    read = Counter(Wanted.of(each, named=named) for each in output.readings)
    if missing := list((wanted - read).elements()):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield f"{missing[0]}: no reading at {format_bytes(missing[0].nbytes)}{more}"
    # A recorded run, which no check has started, may have measured more.
    elif (launch.nonce or not named) and (strange := list((read - wanted).elements())):
        yield f"{strange[0]} at {format_bytes(strange[0].nbytes)} was not requested"


def contradictions(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    """Yield a clock that differs from the kernel's, and the first message without a comparison."""
    counts = any(start.counts for start, _ in output.events_of(Start))
    clocks = [(idle.clock_ratio, line) for idle, line in output.events_of(Idle)]
    clocks += [(end.clock_ratio, line) for end, line in output.events_of(End)]
    for ratio, evidence in clocks:
        if ratio is not None and not abs(ratio - 1) < CLOCK_MARGIN:
            text = f"the clock of the readings ran at {ratio:.3g} times the kernel's"
            yield Contradiction(text, evidence)
            break
    if counts and output.finished and all(ratio is None for ratio, _ in clocks):
        yield Contradiction("nothing compared the clock of the readings", output.finished)
    for check, evidence in output.events_of(Check):
        if not check.messages and (check.messages == 0 or counts):
            size = format_bytes(check.nbytes)
            yield Contradiction(
                f"no message of the {check.operation} at {size} was compared", evidence
            )
            break


def _of_starts(launch: BenchLaunch, output: JobOutput, starts: Sequence[Start]) -> Iterator[str]:
    for start in starts:
        if start.program != launch.bench:
            yield f"requested {launch.bench}, but {start.program} ran"
        elif start.version not in (known := _VERSIONS.get(start.program, [])):
            yield f"{start.program} has no version {start.version!r}; known are {', '.join(known)}"
        if {start.ranks, start.asked_ranks} != {launch.ranks}:
            yield f"requested {launch.ranks} ranks, but {start.ranks} ran"
        on_gpu = launch.gpus or any("D" in reading.buffers for reading in output.readings)
        if on_gpu and start.backend == "host":
            yield "requested GPUs, but the program used none"
    if output.readings and len(starts) != 1:
        yield f"the program started {len(starts)} times"
