# SPDX-License-Identifier: MIT
"""Whether the events of our own programs are what was requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Kind, Reading
from busbar.engine.tool import Contradiction
from busbar.parse.events import CLOCK_MARGIN, Check, Copy, End, Event, Idle, Rank, Start
from busbar.parse.tables import beside
from busbar.units import format_bytes

_VERSIONS: dict[str, list[str]] = beside(__file__)
_ONCE = (Rank, Idle, Check, Copy, End)
_NAMES = ("rank", "operation", "method", "buffers", "source", "target", "nbytes")
_SHORTEST = 0.85
"""The share of the time of a latency that nine in ten batches take at least."""
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
    events = Counter(_key(event) for event, _ in output.events if isinstance(event, _ONCE))
    for event in [each for each, count in events.items() if count > 1][:1]:
        yield f"{event} is in the output twice"
    ranks = sorted(rank.rank for rank, _ in output.events_of(Rank))
    if ranks != list(range(launch.ranks)) and (ranks or not launch.placed):
        yield f"of {launch.ranks} ranks {', '.join(map(str, ranks)) or 'none'} says where it runs"
    for reason, line in output.malformed[:1]:
        yield f"line {line.line} is not a line of {launch.bench}: {reason}"
    if late := _too_long(output):
        yield late
    if launch.operations:
        for statistic in {start.statistic for start in starts if start.statistic}:
            yield f"{launch.bench} has only one statistic, but the output names the {statistic}"
    read = Counter(Wanted.of(each) for each in output.readings)
    if missing := list((wanted - read).elements()):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield f"{missing[0]}: no reading at {format_bytes(missing[0].nbytes)}{more}"
    # A recorded run, which no check has started, may have measured more.
    elif (launch.nonce or launch.operations) and (strange := list((read - wanted).elements())):
        yield f"{strange[0]} at {format_bytes(strange[0].nbytes)} was not requested"


def _key(event: Event) -> str:
    """Return what an event is of."""
    values = (getattr(event, name, None) for name in _NAMES)
    words = [type(event).__name__.lower(), *(str(each) for each in values if each is not None)]
    return " ".join(words)


def _too_long(output: JobOutput) -> str:
    """Return whether the readings took longer than the program, which measures one at a time."""
    end = next((end for end, _ in output.events_of(End)), End(0))
    waited = max((idle.seconds for idle, _ in output.events_of(Idle)), default=0.0)
    measured = sum(each.measured_us or 0 for each in output.readings) * 1e-6
    lasted = max(waited, _SHORTEST * measured)
    if end.seconds is None or lasted <= end.seconds:
        return ""
    return f"the readings took {lasted:.3g} s, but the program only {end.seconds:g} s"


def answer_of(
    kind: Kind, buffers: Mapping[str, str], others: str = ""
) -> Callable[[BenchLaunch, LaunchOutput], Iterator[str]]:
    """Return the ``answer`` of a program that measures each operation of a launch at each size.

    ``buffers`` are those of its operations, by their names, and ``others`` those of the rest.
    """

    def answer_to(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
        wanted = Counter(
            Wanted(kind, name, source, target, buffers.get(name, others), size)
            for name, source, target in launch.operations
            for size in launch.sizes
        )
        return answer(launch, shown, wanted)

    return answer_to


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
    at_end = any(end.clock_ratio is not None for end, _ in output.events_of(End))
    by_rank = {each.rank for each, _ in output.events_of(Idle) if each.clock_ratio is not None}
    others = {rank.rank for rank, _ in output.events_of(Rank)} - by_rank
    if counts and output.finished and not at_end and (others or not by_rank):
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
        elif launch.nonce and start.version != known[-1]:
            yield f"requested version {known[-1]} of {start.program}, but {start.version} ran"
        if {start.ranks, start.asked_ranks} != {launch.ranks}:
            yield f"requested {launch.ranks} ranks, but {start.ranks} ran"
        on_gpu = launch.gpus or any("D" in reading.buffers for reading in output.readings)
        if on_gpu and start.backend == "host":
            yield "requested GPUs, but the program used none"
    if output.readings and len(starts) != 1:
        yield f"the program started {len(starts)} times"
