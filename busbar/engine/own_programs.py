# SPDX-License-Identifier: MIT
"""Whether the events of our own programs are what was requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Kind, Reading
from busbar.engine.tool import Contradiction
from busbar.parse.events import CLOCK_MARGIN, Check, End, Idle, Rank, Start
from busbar.parse.tables import beside
from busbar.units import format_bytes

_VERSIONS: dict[str, list[str]] = beside(__file__)
_SHORTEST = 0.85
"""The share of the time of a latency that nine in ten batches take at least."""
_BATCHES = 2.5
"""Half of those in which a collective is timed: its bus bandwidth can be twice its rate."""
_FEW, _PATIENCE_S = 8, 0.1
"""The messages that a test compares, if these do not take longer."""
_DETOUR = "_through_host"
"""So a program names a pair of GPUs that cannot read each other's memory."""


def latest_version(program: str) -> str:
    """Return the version of a program's source, the only one that a check takes."""
    return _VERSIONS[program][-1]


class Wanted(NamedTuple):
    """A reading that is requested."""

    kind: str
    operation: str
    source: int | None
    target: int | None
    buffers: str
    nbytes: int

    @classmethod
    def of(cls, reading: Reading) -> Wanted:
        """Return what a reading measures."""
        operation, ends = reading.operation.removesuffix(_DETOUR), (reading.source, reading.target)
        return cls(reading.kind, operation, *ends, reading.buffers, reading.nbytes)

    def __str__(self) -> str:
        what = self.operation or ("latency" if self.kind == "latency_us" else "bandwidth")
        pair = "" if self.source is None else f" {self.source}->{self.target}"
        return f"{what}{pair}{self.buffers and ' '}{self.buffers}"


def answer(launch: BenchLaunch, shown: LaunchOutput, wanted: Counter[Wanted]) -> Iterator[str]:
    """Yield where the events of our own program do not match the launch and its readings."""
    output = shown.facts
    starts = [start for start, _ in output.events_of(Start)]
    yield from _of_starts(launch, output, starts)
    ranks = sorted(rank.rank for rank, _ in output.events_of(Rank))
    if ranks != list(range(launch.ranks)) and (ranks or not launch.placed):
        yield f"of {launch.ranks} ranks {', '.join(map(str, ranks)) or 'none'} says where it runs"
    idle = sorted(each.rank for each, _ in output.events_of(Idle))
    if idle and idle != ranks:
        yield f"ranks {', '.join(map(str, idle))} say how long they waited"
    if len(output.events_of(End)) > 1:
        yield f"the program ended {len(output.events_of(End))} times"
    for reason, line in output.malformed[:1]:
        yield f"line {line.line} is not a line of {launch.bench}: {reason}"
    yield from _too_long(output)
    read = Counter(Wanted.of(each) for each in output.readings)
    if missing := list((wanted - read).elements()):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield f"{missing[0]}: no reading at {format_bytes(missing[0].nbytes)}{more}"
    # A recorded run, which no check has started, may have measured more.
    elif (launch.nonce or launch.operations) and (strange := list((read - wanted).elements())):
        yield f"{strange[0]} at {format_bytes(strange[0].nbytes)} was not requested"


def _too_long(output: JobOutput) -> Iterator[str]:
    """Yield that the readings took longer than the program, which measures one at a time."""
    rates = (each for each in output.readings if each.kind == "busbw" and each.value > 0)
    collectives_s = sum(_BATCHES * each.nbytes / each.value * 1e-9 for each in rates)
    pairs_s = sum(each.measured_us or 0.0 for each in output.readings) * 1e-6
    few = [each for each, _ in output.events_of(Check) if (each.messages or _FEW) < _FEW]
    waited_s = [idle.seconds for idle, _ in output.events_of(Idle)]
    least_s = max(*waited_s, collectives_s, _SHORTEST * pairs_s, _PATIENCE_S * len(few))
    for end, _ in output.events_of(End):
        if end.seconds is not None and end.seconds < least_s:
            yield f"the readings took {least_s:.3g} s, but the program only {end.seconds:g} s"


def answer_operations(
    kind: Kind, buffers: Mapping[str, str], launch: BenchLaunch, shown: LaunchOutput
) -> Iterator[str]:
    """Yield the same of a program that measures a ``kind`` of each operation at each size.

    ``buffers`` are those of its operations, by their names.
    """
    sizes, names = launch.sizes, launch.operations
    wanted = (
        Wanted(kind, *each, buffers.get(each[0], ""), size) for each in names for size in sizes
    )
    yield from answer(launch, shown, Counter(wanted))


def contradictions(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    """Yield a clock that differs from the kernel's, and the first message without a comparison."""
    counts = any(start.counts for start, _ in output.events_of(Start))
    idle = [(each.clock_ratio, line) for each, line in output.events_of(Idle)]
    ends = [(each.clock_ratio, line) for each, line in output.events_of(End)]
    for ratio, evidence in [*idle, *ends]:
        if ratio is not None and not abs(ratio - 1) < CLOCK_MARGIN:
            text = f"the clock of the readings ran at {ratio:.3g} times the kernel's"
            yield Contradiction(text, evidence)
            break
    else:
        if counts and None in [ratio for ratio, _ in idle or ends]:
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
        known = _VERSIONS.get(start.program, [])
        known = known[-1:] if launch.nonce else known
        if start.version not in known:
            yield f"requested {start.program} {' or '.join(known)}, but {start.version!r} ran"
        on_gpu = launch.gpus or any("D" in reading.buffers for reading in output.readings)
        if on_gpu and start.backend == "host":
            yield "requested GPUs, but the program used none"
    if output.readings and len(starts) != 1:
        yield f"the program started {len(starts)} times"
