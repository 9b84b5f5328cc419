# SPDX-License-Identifier: MIT
"""Measure the rounds of a plan; a rank that hangs or dies affects only its own pairs.

A rank that does not answer within the time of a pass is silent. Its step is replaced at the end
of the round. The new step omits silent nodes on which Slurm can start no process, and nodes that
were silent twice.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from busbar.cluster.measure.program import Program
from busbar.cluster.measure.step import ALL_RAILS, PairRate, PairStep
from busbar.cluster.measure.store import Store
from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair
from busbar.parse.events import CLOCK_MARGIN
from busbar.slurm.client import Slurm, few_cpus
from busbar.slurm.hostlist import fold
from busbar.slurm.steps import answering

_STRIKES = 2
_MOST_STEPS = 8
_LOOKS, _LOOK_S = 20, 3
_MOST_LOG = 1 << 20
_LOOK_AFTER_S, _SHORT_PROBE_S = 8, 10
"""When nodes that have not started are asked, and how long: a dead one is named in 20 seconds."""
_FEWEST_SEGMENTS = 200
"""Of TCP in one pass: with fewer, the data went another way."""
_LATE = "no answer before the deadline"
_FAILED_START = re.compile(
    r"srun: error: (?:task (?P<task>\d{1,9}) launch failed: |Task launch for \S+ failed on node"
    r" (?P<node>[^\s:]+): |Application launch failed|timeout waiting for task launch)"
)
"""After it Slurm may keep the step, whose other ranks wait in MPI for the one that is missing."""
Pair = tuple[str, str]


class Pass(NamedTuple):
    """What all pairs measure at the same time."""

    name: str | None
    """NIC; None for all NICs at once."""
    rails: tuple[int, ...]

    def ends(self, pair: Pair) -> list[list[tuple[str, int]]]:
        """Return the nodes and rails of both ends."""
        return [[(node, rail) for rail in self.rails] for node in pair]


@dataclass(frozen=True)
class RoundLimits:
    """How long the parts of a sweep may take, in seconds."""

    launch: float
    """From ``srun`` until all ranks take orders."""
    reading: float
    """One pass of a pair, with the set-up of its connection."""
    end: float
    """When the whole must have ended, on the monotonic clock."""
    grace: float = 5
    """How much later the answers of a pass may arrive."""


@dataclass(frozen=True)
class SweepTimes:
    """What a sweep spent its time with, in seconds."""

    launch: float = 0
    measured: float = 0
    """In passes; the readings themselves take a known part of each."""
    rounds: int = 0
    steps: int = 0


def outcome(
    ends: Sequence[Sequence[PairRate | None]], silent: set[str], gone: Container[str]
) -> tuple[PairState, float | None]:
    """Return how a pass of a pair ended, and the rate of its slower direction."""
    answers = [answer for end in ends for answer in end if answer]
    if any(answer.wrong for answer in answers):
        return PairState.WRONG, None
    if any(abs(answer.clock_ratio - 1) > CLOCK_MARGIN for answer in answers):
        return PairState.ERROR, None
    if len(answers) == sum(map(len, ends)) and not any(answer.lost for answer in answers):
        return PairState.OK, min(arrived(ends))
    if any(node in gone for node in silent):
        return PairState.DEAD, None
    if silent or any(answer.lost == _LATE for answer in answers):
        return PairState.TIMEOUT, None
    return (PairState.ERROR if answers else PairState.SKIPPED), None


def resent(ends: Sequence[Sequence[PairRate | None]]) -> tuple[float, float] | None:
    """Return the share of its segments that each end sent again; None if few went by TCP."""
    segments = [sum(answer.segments for answer in end if answer) for end in ends]
    again = [sum(answer.resent for answer in end if answer) for end in ends]
    if min(segments) < _FEWEST_SEGMENTS:
        return None
    here, there = (round(more / every, 6) for more, every in zip(again, segments, strict=True))
    return here, there


def arrived(ends: Sequence[Sequence[PairRate | None]]) -> tuple[float, float]:
    """Return what arrived at each end."""
    rates = [sum(answer.gb_per_s for answer in end if answer) for end in ends]
    return rates[0], rates[-1]


@dataclass
class Rounds:
    """Measures pairs in steps, and keeps account of the nodes that are left."""

    program: Program
    nodes: Sequence[str]
    store: Store
    _: KW_ONLY
    limits: RoundLimits
    log: Path
    show: Callable[[str], None]
    times: SweepTimes = field(default_factory=SweepTimes)
    gone: dict[str, str] = field(default_factory=dict)
    """Nodes that are not used any more, and why."""
    absent: dict[str, str] = field(default_factory=dict)
    """Nodes of the plan that this job does not have, and why."""
    stopped: str = ""
    """Why no more can be measured; empty while it can."""
    _step: PairStep | None = None
    _strikes: Counter[str] = field(default_factory=Counter)

    def measure(self, plan: Sequence[PlannedPair]) -> None:
        """Measure all pairs that have no result yet."""
        for number, rows in groupby(plan, key=lambda row: row.round):
            left = [row for row in rows if not self.store.finished(row)]
            tries = 0
            while left and not self.stopped:
                left = self._round(number, left, last=tries > 0)
                tries += 1
            self._skip(left)

    def leave_out(self, nodes: Iterable[str], why: str) -> None:
        """Keep nodes of the plan out of the steps."""
        self.absent |= dict.fromkeys(nodes, why)

    def close(self) -> None:
        """End the step."""
        if self._step:
            self._step.close(kill=bool(self.stopped))
            self._step = None

    def _round(self, number: int, rows: list[PlannedPair], *, last: bool) -> list[PlannedPair]:
        """Measure one round; return the pairs to measure again, in another step."""
        step = self._running()
        if not step:
            return rows
        present = set(step.nodes)
        now = [row for row in rows if {row.a, row.b} <= present]
        self._skip(row for row in rows if row not in now)
        if not now:
            return []
        step.pair_up([(row.a, row.b) for row in now])
        rails = [Pass(rail.name, (number,)) for number, rail in enumerate(self.program.rails)]
        passes = [*(rails if len(rails) > 1 else ()), Pass(None, tuple(range(len(rails))))]
        again = self._measure(step, number, [(row.a, row.b) for row in now], passes, last=last)
        return [row for row in now if (row.a, row.b) in again]

    def _measure(
        self,
        step: PairStep,
        number: int,
        pairs: Sequence[Pair],
        passes: Sequence[Pass],
        *,
        last: bool,
    ) -> list[Pair]:
        """Measure a round; return the pairs to measure again, in another step."""
        began = time.monotonic()
        answers: list[Mapping[tuple[str, int], PairRate]] = []
        silent: set[str] = set()
        for one in passes:
            if step.ended or self._out_of_time():
                break
            asked = [pair for pair in pairs if silent.isdisjoint(pair)]
            expected = {key for pair in asked for end in one.ends(pair) for key in end}
            rail = one.rails[0] if one.name else ALL_RAILS
            found = step.measure(expected, rail, self.limits.reading, self.limits.grace)
            answers.append(found)
            silent |= {node for node, _ in expected - found.keys()}
        self._spent(began)
        broken = step.ended
        if broken and len(answers) < len(passes):
            silent |= {node for pair in pairs for node in pair}
        if silent:
            self._replace(step, silent, broken=broken)
        repeats = self.stopped or (broken and not last)
        again = [pair for pair in pairs if repeats and not silent.isdisjoint(pair)]
        measured = [pair for pair in pairs if pair not in again]
        found_by_pass = [*answers, *({} for _ in passes[len(answers) :])]
        self.store.add(
            MeasuredPair(number, *pair, one.name, rate, state, rates, lost)
            for pair in measured
            for one, found in zip(passes, found_by_pass, strict=True)
            for ends in [[[found.get(key) for key in end] for end in one.ends(pair)]]
            for state, rate in [outcome(ends, silent.intersection(pair), self.gone)]
            for rates, lost in [(arrived(ends), resent(ends)) if rate else (None, None)]
        )
        slow = f", {len(silent)} nodes did not answer" if silent else ""
        self.show(f"round {number}: {len(measured)} pairs{slow}")
        return again

    def _spent(self, began: float) -> None:
        """Keep account of the time; there may be none left."""
        spent = self.times.measured + time.monotonic() - began
        self.times = replace(self.times, measured=spent, rounds=self.times.rounds + 1)
        if self._out_of_time():
            self.stopped = self.stopped or "the time of the sweep is over"

    def _skip(self, rows: Iterable[PlannedPair]) -> None:
        def skipped(row: PlannedPair) -> MeasuredPair:
            state = PairState.DEAD if {row.a, row.b} & self.gone.keys() else PairState.SKIPPED
            return MeasuredPair(row.round, row.a, row.b, None, None, state)

        self.store.add(map(skipped, rows))

    def _running(self) -> PairStep | None:
        """Return a step with all nodes that are left; None if there can be no more."""
        if self._step and self._step.ended:
            self.close()
        while not self._step and not self.stopped:
            nodes = [node for node in self.nodes if node not in self.gone]
            if len(nodes) < 2:
                self.stopped = "fewer than two nodes are left"
            elif self._out_of_time():
                self.stopped = "the time of the sweep is over"
            elif self.times.steps >= _MOST_STEPS:
                self.stopped = f"{_MOST_STEPS} Slurm steps ended early"
            elif ended := job_ended():
                self.stopped = ended
            else:
                self._start(nodes)
        return self._step

    def _start(self, nodes: list[str]) -> None:
        began = time.monotonic()
        logged = self.log.stat().st_size if self.log.exists() else 0
        patience = max(self.limits.end - began, 1) + self.limits.grace
        few = few_cpus(len(self.program.rails))
        step = PairStep(self.program, nodes, self.log, few_cpus=few, patience=round(patience))
        failed = self._wait(step, began, logged)
        launch = self.times.launch + time.monotonic() - began
        self.times = replace(self.times, launch=launch, steps=self.times.steps + 1)
        if not failed:
            self._step = step
            return
        silent, alive = failed
        reason = (step.errors or _errors_of_slurm(self.log, logged))[:1]
        why = f" ({reason[0]})" if reason else ""
        count = f"{len(silent)} of {len(nodes)} nodes"
        self.show(f"{count} did not start the pair program: {fold(silent)[:200]}{why}")
        step.close(kill=True)
        self._strike(silent, among=len(nodes), alive=alive)

    def _wait(
        self, step: PairStep, began: float, logged: int
    ) -> tuple[set[str], set[str] | None] | None:
        """Wait for the ranks of a step, whose messages begin at byte ``logged`` of the log.

        Return None if all take orders. Otherwise return the nodes that did not start and, if they
        were asked, the ones among them that start another process.
        """
        nodes = step.requested
        deadline = min(began + self.limits.launch, self.limits.end)
        look, asked = min(began + _LOOK_AFTER_S, deadline), False
        while not step.wait_for_ranks(look):
            late = {node for node in nodes if node not in step.started}
            errors = _errors_of_slurm(self.log, logged)
            failed = _failed_starts(errors, nodes, len(self.program.rails))
            if named := late & (failed or set()):
                return named, answering(named, _SHORT_PROBE_S)
            if failed is not None or step.ended or look >= deadline:
                return late or {*nodes} - {*step.nodes}, None
            if not asked and 0 < len(late) * 2 <= len(nodes):  # most have started long ago
                asked, alive = True, answering(late, _SHORT_PROBE_S)
                if alive != late:
                    return late, alive
            look = min(time.monotonic() + _LOOK_S, deadline)
        return None

    def _replace(self, step: PairStep, silent: set[str], *, broken: bool) -> None:
        """End a step with nodes that do not answer; the next round starts another one."""
        step.close(kill=True)
        self._step = None
        self._strike(silent, among=len(step.requested), guilty=not broken)

    def _strike(
        self, nodes: set[str], among: int, *, guilty: bool = True, alive: set[str] | None = None
    ) -> None:
        """Count against nodes that they did not answer, and leave those out that are gone.

        If the job has ended, that is why.
        """
        if ended := job_ended():
            self.stopped = ended
            return
        alive = answering(nodes) if alive is None else alive
        # Most nodes are silent for another reason; and a dead partner can end the ranks of a pair.
        counts = guilty and nodes == alive and len(nodes) * 2 <= max(among, 4)
        for node in sorted(nodes):
            self._strikes[node] += counts
            if node not in alive:
                self.gone[node] = "cannot start processes: down or unreachable"
            elif self._strikes[node] >= _STRIKES:
                self.gone[node] = f"did not start or answer {_STRIKES} times"
        for node in sorted(nodes & self.gone.keys()):
            self.show(f"{node}: {self.gone[node]}")

    def _out_of_time(self) -> bool:
        return time.monotonic() + self.limits.reading + self.limits.grace > self.limits.end


def _errors_of_slurm(log: Path, start: int) -> list[str]:
    """Return what Slurm gives as an error in a log, from a byte on, at most of its end."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _MOST_LOG))
        lines = file.read(_MOST_LOG).decode(errors="backslashreplace").splitlines()
    return [line[:200] for line in lines if re.match(r"(?:srun|slurmstepd)\S*: error: ", line)]


def _failed_starts(errors: Iterable[str], nodes: Sequence[str], per_node: int) -> set[str] | None:
    """Return the nodes on which, according to srun, a start failed; None if no start failed.

    Ranks are numbered by node, in the order of the allocation.
    """
    found = [match for line in errors if (match := _FAILED_START.match(line))]
    by_rank = {int(match["task"]) // per_node for match in found if match["task"]}
    named = {match["node"] for match in found if match["node"]}
    return named | {nodes[n] for n in by_rank if n < len(nodes)} if found else None


def job_ended() -> str:
    """Return how the job of this process ended in Slurm's words; empty while it runs.

    Wait for a controller that restarts, and for a job that is ending.
    """
    for look in range(_LOOKS):
        end = Slurm().job_end(os.environ.get("SLURM_JOB_ID", ""))
        if end and (end.state != "COMPLETING" or look > 1):
            return "" if end.state == "RUNNING" else end.problem or "the job has ended"
        time.sleep(_LOOK_S)
    return "the job has ended"
