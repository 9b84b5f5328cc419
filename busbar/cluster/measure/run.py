# SPDX-License-Identifier: MIT
"""A sweep from its plan to its analysis, with the counters of ports, inside a job of Slurm."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from busbar.cluster.measure.program import Program
from busbar.cluster.measure.rounds import RoundLimits, Rounds, SweepTimes
from busbar.cluster.measure.store import CannotWriteError, Store
from busbar.cluster.sweep.analyse import TOLERANCE, Analysis, analyse
from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.limits import of_limit, of_site
from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.ports import port_faults
from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair, Results
from busbar.cluster.sweep.second_pass import Partners, SuspectPair, plan_suspects
from busbar.parse.port_counters import COUNTERS, DRIVER, growth, parse_counters
from busbar.parse.tables import beside
from busbar.program import call
from busbar.robust import chance_of_so_many
from busbar.site import Site
from busbar.slurm.steps import environment_of_job, srun
from busbar.slurm.topology import SwitchTopology
from busbar.verdict import Verdict
from busbar.words import grouped

LOG = "srun.log"
# The constants: value, meaning, and how to see what another value costs.
#   lab     pytest tests/lab/test_sweep.py, on links that are shaped
#   method  part of the method
_PARTNERS = 3  # method: good nodes that confirm each accusation
_MORE_PASSES = 4  # paths: passes of suspects and accused, of which most need two
_AT_TIMES = 0.5  # lab: share of the median below which a node is slow at times, by packet loss
_OFTEN = 3  # lab: such readings that make it one
_CHANCE = 0.1  # paths: that a healthy node of a fleet has so many; it is not accused
_LAUNCH_S = 300  # method: limit for the start of all ranks
_READING_S = 15  # method: limit for the set-up of the connections of one pass


@dataclass(frozen=True)
class SweepRequest:
    """What to measure, and the reference to compare it with."""

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
        """Nodes that are slow at times with several partners, but not accused."""
        accused = self.analysis.accused if self.analysis else ()
        known = {node for one in accused for node in one.nodes}
        sizes = Counter(row.round for row in self.rows)
        # In rounds of few, suspects are measured more often than others, and across leaves.
        full = {number for number, pairs in sizes.items() if pairs * 2 >= max(sizes.values())}
        measured = [row for row in self.rows if row.gb_per_s and row.round in full]
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
        if self.stopped or self.absent or open_ends:
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
        self._confirmed: set[str] = set()
        """Ids of accusations that were measured again."""
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
        """End the step, and analyse the results so far. ``ended_by`` is a signal."""
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
            again = set() if self.outcome.stopped else self._confirmed
            self.outcome.confirmed = frozenset(again & {one.id for one in found.accused})
            blind = self._before and not (self._grown or self.outcome.stopped)
            notes = ("no node reported port counters at the start and the end",) if blind else ()
            self.outcome.analysis = replace(
                found, accused=(*found.accused, *ports), notes=(*found.notes, *notes)
            )
        return self.outcome

    def _phases(self, rounds: Rounds) -> None:
        rounds.measure(self._plan)
        for _ in range(_MORE_PASSES):
            found = self._analysis()
            if rounds.stopped or not (again := self._again(found)):
                break
            self._show(f"measuring {len(again)} pairs again: suspects, slow and good nodes")
            rounds.measure(plan_suspects(again, found.last_round + 1))

    def _again(self, found: Analysis) -> list[SuspectPair]:
        """Return what to measure again: suspects, and what was not accused before."""
        fresh = [
            one
            for one in found.accused
            if one.kind in ("node", "nic", "link") and one.id not in self._confirmed
        ]
        times = Counter(found.suspects)
        links = {pair: count for pair, count in times.items() if count > 1}
        links |= {SuspectPair(*one.nodes): _PARTNERS for one in fresh if one.kind == "link"}
        bad = {node for one in found.accused if one.kind != "uplink" for node in one.nodes}
        bad |= {pair.a for pair in times} | {pair.b for pair in links}
        good = [node for node in self.outcome.nodes if node not in bad]
        named = sorted({one.node for one in fresh if one.kind != "link"})
        if len(named) > len(good) or len(good) < _PARTNERS:
            named = []
        self._confirmed |= {one.id for one in fresh if one.kind == "link" or one.node in named}
        partners = Partners(good, self._request.topology.leaf_of)
        return [
            *(pair for pair in times if pair not in links),
            *(
                SuspectPair(node, other)
                for node in named
                for other in partners.of(node, _PARTNERS)
            ),
            *(pair for link, count in links.items() for pair in partners.in_turn(link, count)),
        ]

    def _analysis(self) -> Analysis:
        """Analyse the rows."""
        rows = self._store.rows
        least = self._least(rows)
        self.outcome.judged = any(row.nic in least for row in rows)
        planned = max((row.round for row in self._plan), default=0)
        judged_by = (self._request.topology, least, self._request.tolerance)
        return analyse(Results(tuple(rows)), *judged_by, planned)

    def _least(self, rows: Sequence[MeasuredPair]) -> Mapping[str | None, Least]:
        """Return what pairs of nodes must reach."""
        request = self._request
        nics = list(dict.fromkeys(row.nic for row in rows))
        if request.limit is not None:
            return of_limit(request.limit, request.tolerance, nics)
        return of_site(request.site, nics)[0]


_READ_S = 20
_FILES = " ".join(each.place for each in COUNTERS if not each.place.startswith(DRIVER))
_NAMES = "|".join(f"{each.name}:" for each in COUNTERS if each.place.startswith(DRIVER))
_SCRIPT = beside(__file__)["counters"].format(files=_FILES, names=_NAMES, driver=DRIVER)
"""Prints the node, and those above zero as ``PLACE=VALUE``. Slingshot adds ``@`` and the time."""


class CounterRead(threading.Thread):
    """A look at the counters of nodes, which goes on while the caller does something else."""

    def __init__(self, nodes: Collection[str]) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._found: dict[str, dict[str, int]] = {}
        self.start()

    def run(self) -> None:
        """Ask all nodes; those that do not answer in time are left out."""
        command = [*srun(self._nodes), "sh", "-c", _SCRIPT]
        text = call(command, _READ_S, environment_of_job()).stdout
        lines = (line.partition(" ") for line in text.splitlines())
        self._found = {node: parse_counters(words) for node, _, words in lines}

    def result(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counters above zero by node and place."""
        self.join()
        return self._found
