# SPDX-License-Identifier: MIT
"""Judges all readings of one output, and the run by them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from busbar.engine.busy import Load, accounts_for, excused
from busbar.engine.expectation import expectation_of
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import Dip, Judged, against_larger, dips, judge_readings
from busbar.verdict import Verdict, combined, worst

# How far the driver's time can excuse a slow latency: it must fit the other times of the run.
_SHORTEST_MESSAGE = 0.9
"""A message between GPUs that copies take part in is no faster than this share of the shortest
copy: 0.95 to 1.15 on idle and on loaded CPUs (h200x2/gpu_aware_driver_us.log)."""
_UNEVEN = 1.2
"""So much may the CPUs of one rank be slower than those of the run in the middle: 1.17 there."""
_FEW = 3


@dataclass(frozen=True)
class OutputJudgement:
    """The readings of one run with their verdicts."""

    judged: tuple[Judged, ...]
    dips: tuple[Dip, ...] = ()
    """Series of bus bandwidths that fall after their peak."""
    loads: tuple[Load, ...] = ()
    """What other programs did to the run."""

    @property
    def banded(self) -> list[Judged]:
        """The readings that were compared with a band, or are impossible or invalid without."""
        return [each for each in self.judged if each.verdict is not Verdict.UNJUDGED]

    @property
    def waived(self) -> list[Judged]:
        """The readings that are slow at one size of many."""
        return [each for series in self._series() for each in _noise(series)]

    @property
    def excused(self) -> bool:
        """Whether readings are ``unknown`` for what other programs did."""
        dips = any(accounts_for(self.loads, dip.share, dip.alone_us) for dip in self.dips)
        return dips or any(each.verdict is Verdict.UNKNOWN for each in self.judged)

    @property
    def why(self) -> str:
        """Why the first reading without a band has none."""
        return next((each.why for each in self.judged if each.why), "")

    def verdict(
        self, stated: Verdict | None, effects: Sequence[Verdict], *, explained: bool
    ) -> Verdict:
        """Return the verdict of the run.

        ``stated`` is the verdict of a check, which judged these readings; ``effects`` are those
        that other evidence in the output justifies. ``explained`` is whether the output shows
        for certain what makes readings slow.
        """
        parts = [stated] if stated else list(self._parts(explained))
        problems = [effect for effect in effects if effect.is_problem]
        return worst([combined(parts or [Verdict.UNJUDGED]), *problems])

    def _parts(self, explained: bool) -> Iterator[Verdict]:
        """Yield the verdicts of the readings, and one for each series of bandwidths that dips.

        A log cannot be measured again, as a check is. So a single slow size among many is taken
        for noise if nothing explains it: a series is degraded if its largest size is slow, or two
        of its sizes are.
        """
        for series in self._series():
            noise = [] if explained else _noise(series)
            # A noisy reading cannot be compared: another reading must pass.
            yield from (Verdict.UNJUDGED if each in noise else each.verdict for each in series)
        for dip in self.dips:
            busy = accounts_for(self.loads, dip.share, dip.alone_us)
            yield Verdict.UNKNOWN if busy else Verdict.DEGRADED

    def _series(self) -> list[list[Judged]]:
        groups: dict[tuple[object, ...], list[Judged]] = defaultdict(list)
        for each in self.judged:
            r = each.reading
            groups[r.kind, r.source, r.target, r.in_place, r.buffers, r.operation].append(each)
        return [sorted(group, key=lambda each: each.reading.nbytes) for group in groups.values()]


def _noise(series: list[Judged]) -> list[Judged]:
    """Return the slow reading of a series if it is the only one, and not the largest."""
    slow = [each for each in series if each.is_slow]
    return slow if len(slow) == 1 and slow[0] is not series[-1] else []


def judge_output(
    run: Run, readings: Iterable[Reading], found: tuple[Load, ...] = ()
) -> OutputJudgement:
    """Judge ``readings`` of ``run`` by what is known of it; ``found`` slowed it down."""
    readings = _plausible(readings)
    judged = excused(against_larger(judge_readings(readings, expectation_of(run))), found)
    return OutputJudgement(tuple(judged), tuple(dips(judged)), found)


def _plausible(readings: Iterable[Reading]) -> list[Reading]:
    """Return the readings; a driver's time that the run contradicts is lowered or left out."""
    readings = [
        replace(each, driver_us=None)
        if each.driver_us and each.driver_us * _SHORTEST_MESSAGE > each.value
        else each
        for each in readings
    ]
    times = [each.driver_us for each in readings if each.driver_us]
    most = _UNEVEN * median(times) if len(times) >= _FEW else None
    return [
        replace(each, driver_us=min(each.driver_us, most)) if each.driver_us and most else each
        for each in readings
    ]
