# SPDX-License-Identifier: MIT
"""A sweep from its plan to its analysis, inside a job of Slurm."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from busbar.cluster.measure.counters import CounterRead
from busbar.cluster.measure.program import Program
from busbar.cluster.measure.rounds import RoundLimits, Rounds, SweepTimes
from busbar.cluster.measure.store import CannotWriteError, Store
from busbar.cluster.sweep.accusation import Accusation
from busbar.cluster.sweep.analyse import TOLERANCE, Analysis, analyse
from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.limits import of_limit, of_site
from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.ports import port_faults
from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair, Results
from busbar.cluster.sweep.second_pass import SuspectPair, plan_suspects
from busbar.parse.port_counters import growth
from busbar.robust import chance_of_so_many
from busbar.site import Site
from busbar.slurm.topology import SwitchTopology
from busbar.verdict import Verdict
from busbar.words import grouped

LOG = "srun.log"
# The constants: value, meaning, and how to see what another value costs.
#   lab     pytest tests/lab/test_sweep.py, on links that are shaped
#   method  part of the method
_PARTNERS = 3  # method: good nodes that confirm each accusation
_SECOND_PASSES = 3  # paths: passes of suspects, of which most need one
_AT_TIMES = 0.5  # lab: share of the median below which a node is slow at times, by packet loss
_OFTEN = 3  # lab: such readings that make it one
_CHANCE = 0.1  # paths: that a healthy node of a fleet has so many; it is not accused
_LAUNCH_S = 300  # method: limit for the start of all ranks
_READING_S = 15  # method: limit for the set-up of the connections of one pass


@dataclass(frozen=True)
class SweepRequest:
    """What to measure, and what it is compared with."""

    site: Site
    topology: SwitchTopology
    rounds: int
    seed: int
    seconds_in_all: float
    limit: float | None = None
    """GB/s between two nodes with all NICs; None takes the band of the site."""
    tolerance: float = TOLERANCE
    nics: tuple[str, ...] = ()
    """Names of the NICs that the site has for these nodes."""


@dataclass
class SweepOutcome:
    """What a sweep found."""

    nodes: tuple[str, ...]
    analysis: Analysis | None = None
    confirmed: frozenset[str] = frozenset()
    """Ids of accusations that were made before and after the confirmation."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """Nodes that stopped answering, and how."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Nodes of the plan that the job does not have."""
    stopped: str = ""
    """Why the sweep ended early; empty if it did not."""
    judged: bool = False
    """Whether a limit or a band was known."""
    times: SweepTimes = field(default_factory=SweepTimes)
    rows: Sequence[MeasuredPair] = ()
    left: Sequence[PlannedPair] = ()
    """Pairs of the plan that have no result."""

    @property
    def wrong(self) -> list[MeasuredPair]:
        """The pairs whose data arrived wrong."""
        return [row for row in self.rows if row.state is PairState.WRONG]

    @property
    def median(self) -> float | None:
        """GB/s of the pairs with all NICs at once; None if nothing was measured."""
        rates = [row.gb_per_s for row in self.rows if row.nic is None and row.gb_per_s]
        return median(rates) if rates else None

    @property
    def unsteady(self) -> list[str]:
        """The nodes that nobody accuses and that are slow at times, with several partners."""
        accused = self.analysis.accused if self.analysis else ()
        known = {node for one in accused for node in one.nodes}
        measured = [row for row in self.rows if row.gb_per_s]
        # In rounds that cross leaves all pairs may be slower, as they share uplinks.
        keys = ((row, key) for row in measured for key in (row.nic, (row.nic, row.round)))
        rates = grouped((key, row.gb_per_s or 0) for row, key in keys)
        middle = {key: median(each) for key, each in rates.items()}
        slow = grouped(
            ends
            for row in measured
            if (row.gb_per_s or 0) < _AT_TIMES * min(middle[row.nic], middle[row.nic, row.round])
            and not known & {row.a, row.b}
            for ends in ((row.a, (row.round, row.b)), (row.b, (row.round, row.a)))
        )
        ends = Counter(node for row in measured for node in (row.a, row.b))
        all_slow = sum(map(len, slow.values())) / 2
        return [
            node
            for node, others in slow.items()
            # Pairs collide on their way: in a large fleet some nodes have several such readings.
            for share in [(all_slow - len(others) + 1) / (len(measured) - ends[node] + 2)]
            if len({*others}) >= _OFTEN and len({partner for _, partner in others}) > 1
            if chance_of_so_many(len(others), ends[node], share) * len(ends) < _CHANCE
        ]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the sweep."""
        states = {row.state for row in self.rows}
        if not self.analysis or PairState.OK not in states:
            failed = states - {PairState.SKIPPED}
            return Verdict.FAILED if failed or self.gone else Verdict.NOT_RUN
        if self.wrong or self.gone:
            return Verdict.FAILED
        if self.analysis.accused:
            return Verdict.DEGRADED
        lost = states & {PairState.TIMEOUT, PairState.DEAD, PairState.ERROR}
        if lost and self.analysis.unmeasured:
            return Verdict.FAILED
        open_ends = self.analysis.unmeasured or self.analysis.suspects or self.unsteady
        if self.stopped or self.left or open_ends:
            return Verdict.UNKNOWN
        return Verdict.PASS if self.judged else Verdict.UNJUDGED


class SweepRunner:
    """Measures a plan, the suspects and the accused; what was measured outlives an exception."""

    def __init__(
        self,
        request: SweepRequest,
        nodes: Sequence[str],
        directory: Path,
        show: Callable[[str], None],
    ) -> None:
        self.outcome = SweepOutcome(tuple(nodes))
        self._request = request
        self._store = Store(directory)
        self._log = directory / LOG
        self._show = show
        self._plan: list[PlannedPair] = []
        self._rounds: Rounds | None = None
        self._acquitted: frozenset[str] = frozenset()
        self._before: CounterRead | None = None
        self._grown: Mapping[str, Mapping[str, int]] = {}

    def prepare(self, *, resume: bool) -> None:
        """Write the plan, or load the plan of the sweep to resume."""
        if resume:
            self._plan = self._store.resume()
            left = {node for row in self._plan for node in (row.a, row.b)}
            self.outcome.nodes = tuple(sorted(left | set(self.outcome.nodes)))
            done = len(self._store.rows)
            self._show(f"resuming a sweep of {len(left)} nodes with {done} rows of results")
            return
        request = self._request
        self._plan = plan(self.outcome.nodes, request.topology, request.rounds, request.seed)
        self._store.begin(self._plan)

    def watch(self, nodes: Sequence[str]) -> None:
        """Begin to read the counters of ports, which :meth:`measure` reads again at its end."""
        self._before = CounterRead(nodes)

    def measure(self, program: Program, nodes: Sequence[str]) -> None:
        """Measure on the nodes of the job; :meth:`conclude` must follow, whatever happens."""
        self._log.unlink(missing_ok=True)
        self._rounds = rounds = Rounds(
            program,
            nodes,
            self._store,
            limits=RoundLimits(
                launch=min(_LAUNCH_S, self._request.seconds_in_all / 2),
                reading=_READING_S + 2 * program.seconds,
                end=time.monotonic() + self._request.seconds_in_all,
            ),
            log=self._log,
            show=self._show,
        )
        rounds.leave_out(set(self.outcome.nodes) - set(nodes), "is not in this job")
        try:
            self._phases(rounds)
        except CannotWriteError as error:
            rounds.stopped = str(error)
        if self._before:
            left = [node for node in nodes if node not in rounds.gone]
            before, after = self._before.result(), CounterRead(left).result()
            both = before.keys() & after.keys()
            self._grown = {node: growth(before[node], after[node]) for node in both}

    def conclude(self, ended_by: str = "") -> SweepOutcome:
        """End the step, and analyse what there is. ``ended_by`` is a signal."""
        self.outcome.stopped = f"{ended_by} ended the sweep" if ended_by else ""
        if rounds := self._rounds:
            rounds.stopped = self.outcome.stopped = self.outcome.stopped or rounds.stopped
            rounds.close()
            self.outcome.gone, self.outcome.absent = rounds.gone, rounds.absent
            self.outcome.times = rounds.times
        self.outcome.rows = self._store.rows
        self.outcome.left = [row for row in self._plan if not self._store.finished(row)]
        if self._store.rows:
            found = self._analysis()
            ports = port_faults(self._grown, self._request.nics)
            accused = [one for one in found.accused if one.id not in self._acquitted]
            blind = self._before and not self._grown
            notes = ("no node showed the counters of its ports at both ends",) if blind else ()
            self.outcome.analysis = replace(
                found, accused=(*accused, *ports), notes=(*found.notes, *notes)
            )
        return self.outcome

    def _phases(self, rounds: Rounds) -> None:
        rounds.measure(self._plan)
        last = max(row.round for row in self._plan)
        for _ in range(_SECOND_PASSES):
            again = plan_suspects(self._analysis(last).suspects, last + 1)
            if not again or rounds.stopped:
                break
            self._show(f"measuring {len(again)} pairs of suspects again")
            rounds.measure(again)
            last = max(row.round for row in again)
        second = self._analysis(last)
        confirming = [*self._nodes_again(second), *self._links_again(second)]
        if confirming:
            self._show(f"confirming {len(second.accused)} findings")
            rounds.measure(plan_suspects(confirming, last + 1))
        measured = {node for pair in confirming for node in (pair.a, pair.b)}
        self._acquitted = frozenset(self._acquit(second.accused, last))
        after = {one.id for one in self._analysis().accused} - self._acquitted
        self.outcome.confirmed = frozenset(
            one.id
            for one in second.accused
            if one.id in after and one.kind != "uplink" and measured.issuperset(one.nodes)
        )

    def _nodes_again(self, analysis: Analysis) -> list[SuspectPair]:
        """Return pairs of the accused nodes and NICs with nodes that nobody accuses."""
        accused = [one for one in analysis.accused if one.kind in ("node", "nic")]
        good = self._good(analysis, analysis.accused)
        named = sorted({one.nodes[0] for one in accused})
        if len(named) > len(good) or len(good) < _PARTNERS:
            return []
        return [
            SuspectPair(node, near[(_PARTNERS * at + step) % len(near)])
            for at, node in enumerate(named)
            for near in [self._near(node, good, _PARTNERS)]
            for step in range(_PARTNERS)
        ]

    def _links_again(self, analysis: Analysis) -> list[SuspectPair]:
        """Return the accused links, in turn with good partners of both ends.

        The second pass measures a link so often within seconds that a disturbance of an end looks
        like a slow link. It is over now, or slows down the other partners as well.
        """
        pairs: list[SuspectPair] = []
        good = self._good(analysis, [one for one in analysis.accused if one.kind != "uplink"])
        for one in analysis.accused:
            if one.kind != "link":
                continue
            a, b = one.nodes
            for step in range(_PARTNERS):
                pairs.append(SuspectPair(a, b))
                for offset, end in enumerate((a, b)):
                    near = self._near(end, good)
                    pairs += [SuspectPair(end, near[(step + offset) % len(near)])] if near else []
        return pairs

    def _acquit(self, accused: Iterable[Accusation], last: int) -> Iterator[str]:
        """Yield the links that were as fast as their ends with others while they were confirmed.

        What disturbs all nodes for a while makes every link slow that is repeated then.
        """
        rows = [row for row in self._store.rows if row.round > last and row.gb_per_s]
        for one in accused:
            if one.kind != "link":
                continue
            rates = grouped(
                ((row.nic, {row.a, row.b} == {*one.nodes}), row.gb_per_s or 0.0)
                for row in rows
                if {row.a, row.b} & {*one.nodes}
            )
            nics = {nic for nic, mine in rates if mine}
            least = 1 - self._request.tolerance
            if nics and all(
                median(rates[nic, True]) >= least * median(rates.get((nic, False), [math.inf]))
                for nic in nics
            ):
                yield one.id

    def _good(self, analysis: Analysis, accused: Iterable[Accusation]) -> list[str]:
        """Return the nodes that are neither suspects nor among the accused."""
        bad = {node for one in accused for node in one.nodes}
        bad |= {node for pair in analysis.suspects for node in (pair.a, pair.b)}
        return [node for node in self.outcome.nodes if node not in bad]

    def _near(self, end: str, nodes: list[str], least: int = 1) -> list[str]:
        """Return the nodes on the leaf of a node; all of them if there are too few."""
        leaf_of = self._request.topology.leaf_of
        near = [node for node in nodes if leaf_of.get(node) == leaf_of.get(end)]
        return near if len(near) >= least else nodes

    def _analysis(self, last: int | None = None) -> Analysis:
        """Analyse the rows up to a round."""
        rows = [row for row in self._store.rows if last is None or row.round <= last]
        least = self._least(rows)
        self.outcome.judged = any(row.nic in least for row in rows)
        planned = max((row.round for row in self._plan), default=0)
        judged_by = (self._request.topology, least, self._request.tolerance)
        return analyse(Results(tuple(rows), ()), *judged_by, planned)

    def _least(self, rows: Sequence[MeasuredPair]) -> Mapping[str | None, Least]:
        """Return what pairs of nodes must reach."""
        request = self._request
        nics = list(dict.fromkeys(row.nic for row in rows))
        if request.limit is not None:
            return of_limit(request.limit, request.tolerance, nics)
        return of_site(request.site, nics)[0]
