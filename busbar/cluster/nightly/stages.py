# SPDX-License-Identifier: MIT
"""The stages of a night: what each of them runs, and what came of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from busbar.check.snapshot import Snapshot, read
from busbar.cluster.measure.store import PLAN
from busbar.cluster.nightly import gate
from busbar.cluster.nightly.night import Night, NightFinding, NightStage, StageName
from busbar.cluster.nightly.process import Ended, run
from busbar.cluster.nodes.looks import look_of, of_history
from busbar.cluster.nodes.record import NodeLook
from busbar.cluster.sweep.document import SweepRun, read_sweep
from busbar.data import busbar
from busbar.delivery.choice import Choice
from busbar.engine.results import RESULTS_FILE
from busbar.errors import BusbarError
from busbar.history.events import find_events
from busbar.history.read import history, read_series
from busbar.redact import redact
from busbar.site.gate import NodePolicy
from busbar.slurm.hostlist import fold
from busbar.slurm.options import Grant, Wish
from busbar.verdict import Verdict, exit_status, worst

SWEEP_VERDICT = "sweep.json"
_SIGNALLED = 128
_MOST_FINDINGS = 1000


@dataclass(frozen=True)
class NightJob:
    """What the stages have in common."""

    night: Night
    site: str
    grant: Grant
    wish: Wish
    choice: Choice = field(default_factory=Choice)
    limit: float | None = None
    """GB/s between two nodes, for the sweep."""
    policy: NodePolicy = field(default_factory=NodePolicy)
    """What the site does about nodes."""
    deadline: float | None = None
    """A time of the monotonic clock."""

    @property
    def submission(self) -> list[str]:
        """The options of a stage that say how Slurm gives the nodes."""
        pending = self.wish.max_pending_s
        values = {
            "partition": self.grant.partition.name,
            "reservation": self.wish.reservation,
            "sbatch": self.wish.sbatch,
            "max-pending": "" if pending is None else f"{pending}s",
        }
        return [f"--{name}={value}" for name, value in values.items() if value]

    @property
    def stack(self) -> list[str]:
        """The options of a stage that choose the stack."""
        choice = self.choice
        values = {"lane": choice.lane, "prefix": choice.prefix, "delivery": choice.delivery}
        return [f"--{name}={value}" for name, value in values.items() if value]


def sample_of(nodes: Sequence[str], count: int, day: date) -> tuple[str, ...]:
    """Return the nodes for the larger set; the next ones each day, until all had their turn."""
    count = min(count, len(nodes))
    first = day.toordinal() * count
    return tuple(nodes[(first + n) % len(nodes)] for n in range(count))


def measure(name: StageName, job: NightJob, nodes: Sequence[str]) -> NightStage:
    """Run a stage on nodes."""
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        stage = _RUN[name](job, nodes)
    except BusbarError as error:
        stage = NightStage(name, Verdict.NOT_RUN, error.alone(), finished=False)
    return replace(
        stage,
        message=redact(stage.message),
        findings=tuple(replace(each, message=redact(each.message)) for each in stage.findings),
        begun=begun,
        nodes=tuple(nodes),
    )


def _gate(job: NightJob, nodes: Sequence[str]) -> NightStage:
    output = job.night.path("gate")
    shutil.rmtree(output, ignore_errors=True)  # an earlier attempt
    output.mkdir()
    command = gate.command(job.site, job.grant, job.wish, nodes, output)
    ended = run(command, job.night.path("gate.out"), job.night.path("gate.log"), job.deadline)
    known = gate.read(output, nodes)
    findings = [
        gate.finding_of(known[node])
        if node in known
        else NightFinding(node, Verdict.NOT_RUN, f"no verdict: {ended.said or _how(ended)}")
        for node in nodes
    ]
    bad = tuple(node for node in nodes if node in known and known[node].drain)
    text = f"{len(known)} of {len(nodes)} nodes have a verdict, {len(bad)} failed"
    shown = [each for each in findings if each.verdict is not Verdict.PASS]
    return NightStage(
        "gate",
        worst(each.verdict for each in findings),
        _sentence(text, shown),
        finished=not ended.late and not _signalled(ended),
        seconds=ended.seconds,
        findings=tuple(findings),
        left_out=bad,
    )


def _sweep(job: NightJob, nodes: Sequence[str]) -> NightStage:
    output = job.night.path("sweep")
    out = job.night.path(SWEEP_VERDICT)
    limit = [] if job.limit is None else [f"--limit={job.limit}"]
    resume = ["--resume"] if (output / PLAN).exists() else []
    command = busbar(
        *("sweep", "run", "--json", f"--site={job.site}", f"--output={output}"),
        *(f"--nodelist={fold(nodes)}", *job.submission, *limit, *job.stack, *resume),
    )
    ended = run(command, out, job.night.path("sweep.log"), job.deadline)
    try:
        found = read_sweep(out)
    except BusbarError:
        return _without_verdict("sweep", ended)
    if not isinstance(found, SweepRun):
        return _without_verdict("sweep", ended)
    findings = [
        *(NightFinding(one.id, Verdict.DEGRADED, one.evidence) for one in found.accused),
        *(NightFinding(pair, Verdict.FAILED, "wrong data") for pair in found.wrong_data),
        *(NightFinding(one.node, Verdict.FAILED, one.reason) for one in found.gone),
        *(NightFinding(what, Verdict.NOT_RUN, "not measured") for what in found.unmeasured),
        *(NightFinding(node, Verdict.UNKNOWN, "slow at times") for node in found.unsteady),
        *(
            NightFinding(f"{pair.a}-{pair.b}", Verdict.UNKNOWN, "undecided: measure it again")
            for pair in found.suspects
        ),
    ]
    stopped = [f"ended early: {found.stopped}"] if found.stopped else []
    text = "; ".join([f"{len(found.nodes)} nodes, {len(found.accused)} accused", *stopped])
    return _stage("sweep", ended, found.verdict, _sentence(text, findings), findings)


def _checks(
    name: StageName, tags: Sequence[str], job: NightJob, nodes: Sequence[str]
) -> NightStage:
    output = job.night.path(name)
    results = output / RESULTS_FILE
    results.unlink(missing_ok=True)  # of an earlier attempt
    command = busbar(
        *("check", f"--site={job.site}", f"--nodelist={fold(nodes)}", *tags),
        *(*job.submission, *job.stack, f"--output={output}"),
    )
    ended = run(
        command, job.night.path(f"{name}.out"), job.night.path(f"{name}.log"), job.deadline
    )
    try:
        found = read(results)
    except BusbarError:
        return _without_verdict(name, ended)
    findings = _findings(found)
    text = "; ".join(filter(None, (found.coverage, f"{len(found.outcomes)} checks have results")))
    return _stage(name, ended, found.verdict, _sentence(text, findings), findings)


_RUN: Mapping[StageName, Callable[..., NightStage]] = {
    "gate": _gate,
    "sweep": _sweep,
    "check": partial(_checks, "check", ()),
    "sample": partial(_checks, "sample", ("--tag=nightly",)),
}


def _findings(found: Snapshot) -> list[NightFinding]:
    """Return what the checks say against each place, the worst first."""
    wrong = [
        row for outcome in found.outcomes for row in outcome.results if row.verdict.is_problem
    ]
    rows = [NightFinding(row.where, row.verdict, f"{row.check}: {row.message}") for row in wrong]
    return sorted(dict.fromkeys(rows), key=lambda each: -each.verdict.severity)[:_MOST_FINDINGS]


def _stage(
    name: StageName, ended: Ended, verdict: Verdict, message: str, findings: Sequence[NightFinding]
) -> NightStage:
    """Return a stage that left a verdict, which its exit status must confirm."""
    finished = not ended.late and not _signalled(ended)
    if not finished:
        # Earlier results count, but say nothing about the rest.
        verdict = worst([verdict, Verdict.UNKNOWN])
        message = f"{_how(ended)}; {message}"
    elif ended.status != exit_status(verdict):
        message = f"its verdict is {verdict}, but it {_how(ended)}: {ended.said}"
        verdict = Verdict.FAILED
    return NightStage(
        name, verdict, message, finished, seconds=ended.seconds, findings=tuple(findings)
    )


def _without_verdict(name: StageName, ended: Ended) -> NightStage:
    message = ": ".join(filter(None, (_how(ended), ended.said)))
    return NightStage(name, Verdict.NOT_RUN, message, finished=False, seconds=ended.seconds)


def _how(ended: Ended) -> str:
    if ended.late:
        return "was stopped by --max-hours"
    if ended.status < 0:
        return f"was ended by signal {-ended.status}"
    return f"exited with status {ended.status}"


def _signalled(ended: Ended) -> bool:
    return ended.status < 0 or ended.status > _SIGNALLED


def _sentence(text: str, findings: Sequence[NightFinding]) -> str:
    """Return the text, and the first finding that has a message."""
    first = next((each for each in findings if each.message), None)
    if not first:
        return text
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    what = ": ".join(filter(None, (first.where, first.message)))
    return "; ".join(filter(None, (text, f"{what}{more}")))


def looks(job: NightJob, name: str, tell: Callable[[str], None]) -> Iterator[NodeLook]:
    """Yield the results for single nodes from a night's stages and its site's history."""
    night = job.night
    checked = (night.path(each) / RESULTS_FILE for each in ("check", "sample"))
    files = (*night.path("gate").glob("*.json"), night.path(SWEEP_VERDICT), *checked)
    for path in filter(Path.exists, files):
        try:
            yield look_of(path)
        except BusbarError as error:
            tell(f"no record of a node: {error.alone()}")
    with history() as store:
        if series := read_series(store, name):
            events = find_events(series, store.provenance())
            yield of_history(events, series, datetime.now(UTC).timestamp())


def snapshots(night: Night) -> Mapping[str, Snapshot]:
    """Return the results of the checks of a night, by stage."""
    found = {}
    for name in ("check", "sample"):
        try:
            found[name] = read(night.path(name) / RESULTS_FILE)
        except BusbarError:
            continue  # it did not run
    return found
