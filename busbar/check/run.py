# SPDX-License-Identifier: MIT
"""Run ReFrame on the checks, and collect their results."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from busbar.boundary import output_directory
from busbar.check.listing import Match
from busbar.check.names import short_name, without_place
from busbar.check.outcome import outcome_of
from busbar.check.places import NodePlace, NodeSweep, Order
from busbar.check.processes import Interruption
from busbar.check.reframe import ReFrame
from busbar.data import CHECKS
from busbar.engine.repeat import confirmed, disagree, only_below_band, unconfirmed
from busbar.engine.results import RESULTS_FILE, Outcome
from busbar.errors import BusbarError
from busbar.site import Site
from busbar.slurm.hostlist import hostnames
from busbar.terminal import stderr

_STEP = re.compile(
    r"\[\s*(?P<word>RUN|OK|FAIL|SKIP)\s*\]\s+(?:\(\s*\d+/\d+\)\s+)?"
    r"(?P<name>\S.*?)(?= [~/@]|$)(?P<fixture> ~)?"
)


@dataclass(frozen=True)
class Step:
    """The start or end of a job."""

    check: str
    """Its short name."""
    ended: bool = False
    counts: bool = True
    """Whether the job counts for progress; builds and repetitions do not."""


Progress = Callable[[Step], None]


def step_of(line: str) -> Step | None:
    """Return the step reported by a line of ReFrame, if any."""
    step = _STEP.match(line)
    if not step:
        return None
    name = short_name(step["name"])
    return Step(name, ended=step["word"] != "RUN", counts=not step["fixture"])


def cases_of(report: Path) -> list[dict[str, Any]]:
    """Return the cases of ReFrame's report; empty if it is missing or truncated."""
    try:
        runs = json.loads(report.read_text(encoding="utf-8"))["runs"]
    except (OSError, ValueError, LookupError, TypeError):  # `_broken` says why ReFrame ended
        return []
    return list(runs[-1]["testcases"]) if runs else []


def job_count(matches: Sequence[Match], sweep: NodeSweep | None) -> int:
    """Return the number of jobs: one per check and place."""
    pairs = [(match, place.partition("+")[0]) for match in matches for place in match.runs_in]
    if sweep is None:
        return len(pairs)
    return sum(len(sweep.places(partition, match.nodes)) for match, partition in pairs)


@dataclass(frozen=True)
class RunPlan:
    """What to run, and where."""

    site: Site
    config: Path
    """ReFrame's configuration file."""
    lane: str
    output: Path
    """Directory for all files of the run."""
    hashes: tuple[str, ...] = ()
    """ReFrame's hashes of the checks to run."""
    checks: tuple[Path, ...] = (CHECKS,)
    """Files or directories of checks."""
    variables: tuple[str, ...] = ()
    """``check.variable=value``, as for ``reframe -S``."""
    retries: int = 0
    """How often to repeat readings below their band; once more if the runs disagree."""
    nodes: str = ""
    """Slurm's list of the nodes to run on; empty for any."""
    sweep: NodeSweep | None = None
    """The nodes to test; None leaves the nodes to the scheduler."""
    options: tuple[str, ...] = ()
    """Further ReFrame options."""
    within: tuple[str, str] | None = None
    """The only partition and environment to run in; None for all."""


_Found = list[tuple[dict[str, Any] | None, Outcome]]
"""A ReFrame case and its outcome; without a case if ReFrame itself failed."""
_Repeated = dict[tuple[str, str, str], list[tuple[str, NodePlace]]]
"""Checks to repeat with their places, by nodes, partition and environment."""


_NOT_STORED = re.compile(r"failed to store results in the database: (?P<why>.+)")
"""ReFrame's warning."""

_COMPLAINT = re.compile(r"(?P<level>ERROR|WARNING): (?P<text>.+)")
_STOPPED = re.compile(r"ERROR: run session stopped: (?P<why>.+)")
"""ReFrame's message if an error in one check, such as a failed assertion, ends all checks."""


def load(plan: RunPlan, reframe: ReFrame) -> list[Match]:
    """Load all checks of the plan in ReFrame; return where each of them can run.

    Raises ``BusbarError`` if a check file cannot be loaded; :func:`run` then reports it as an
    outcome.
    """
    output_directory(plan.output, "--output")  # a repetition has a new directory
    return reframe.load(_arguments(plan))


def run(
    plan: RunPlan, progress: Progress, reframe: ReFrame, interruption: Interruption
) -> list[Outcome]:
    """Run the checks that ``reframe`` has loaded; return the outcome of each.

    An error of ReFrame is reported as a failed outcome. ``progress`` gets a step when a check
    starts and when it ends. After a signal, only finished checks have outcomes.
    """
    again = plan.output / "reframe" / "again"
    shutil.rmtree(again, ignore_errors=True)  # from an earlier run

    found = _run_once(plan, progress, reframe, interruption)
    confirmations: set[tuple[str, ...]] = set()
    for attempt in range(1, plan.retries + 2 if plan.retries else 1):
        places = _below_band(plan, found, last=attempt > plan.retries)
        for number, ((nodes, *within), checks) in enumerate(places.items()):
            progress(Step("again: readings below their band", counts=False))
            output = again / f"{attempt}-{number}"
            more = replace(plan, output=output, nodes=nodes, within=(within[0], within[1]))
            repeats = _repeat(more, checks, progress, interruption)
            found = _merged(found, repeats)
            confirmations |= _ended(repeats).keys()
    if interruption.name and plan.retries:
        found = [
            (case, unconfirmed(outcome))
            if case and only_below_band(outcome) and _key(case, outcome) not in confirmations
            else (case, outcome)
            for case, outcome in found
        ]
    return [outcome for _, outcome in found]


def _below_band(plan: RunPlan, found: _Found, *, last: bool) -> _Repeated:
    """Return what to repeat; with ``last``, only where earlier runs disagree."""
    places: _Repeated = defaultdict(list)
    for case, outcome in found:
        # Repetitions on different nodes would be meaningless.
        somewhere = outcome.nodes or plan.site.scheduler == "local"
        if case and somewhere and only_below_band(outcome) and (disagree(outcome) or not last):
            place = NodePlace(case["partition"], hostnames(outcome.nodes))
            nodes = "" if plan.sweep else outcome.nodes
            places[nodes, case["partition"], case["environ"]].append((_name(case), place))
    return places


def _repeat(
    plan: RunPlan,
    repeated: Sequence[tuple[str, NodePlace]],
    progress: Progress,
    interruption: Interruption,
) -> _Found:
    """Run checks again in a new process, by name and place."""
    if interruption.name:
        return []
    names = {name for name, _ in repeated}
    if plan.sweep:
        only = tuple(dict.fromkeys(place for _, place in repeated))
        plan = replace(plan, sweep=replace(plan.sweep, only=only))
    with ReFrame() as another:
        matches: list[Match] = []
        with suppress(BusbarError):  # the outcome reports this
            matches = load(plan, another)
        plan = replace(plan, hashes=tuple(m.hash for m in matches if m.name in names))
        return _run_once(plan, progress, another, interruption)


def _merged(found: _Found, again: _Found) -> _Found:
    """Pairs of an outcome below its band and the outcome of its repetition, if that ran."""
    repeated = _ended(again)
    return [
        (case, confirmed(outcome, repeated[_key(case, outcome)]))
        if case and _key(case, outcome) in repeated and only_below_band(outcome)
        else (case, outcome)
        for case, outcome in found
    ]


def _ended(found: _Found) -> dict[tuple[str, ...], Outcome]:
    return {
        _key(case, outcome): outcome
        for case, outcome in found
        if case and case["result"] != "abort"
    }


def _key(case: dict[str, Any], outcome: Outcome) -> tuple[str, ...]:
    return _name(case), case["partition"], case["environ"], outcome.nodes


def _name(case: dict[str, Any]) -> str:
    return without_place(case["display_name"])


def _run_once(
    plan: RunPlan, progress: Progress, reframe: ReFrame, interruption: Interruption
) -> _Found:
    log = plan.output / "reframe.log"
    earlier = _left(plan)
    lines: list[str] = []
    report(plan).unlink(missing_ok=True)  # from an earlier run
    with log.open("wb", buffering=0) as kept:
        for line in reframe.run(Order(plan.hashes, plan.sweep)):
            lines.append(line)
            with suppress(OSError):  # a full disk must not lose results
                kept.write(line.encode(errors="backslashreplace"))
            if step := step_of(line):
                progress(replace(step, counts=step.counts and not plan.within))
    for line in lines:
        if line.startswith("busbar: "):  # of busbar.check.build
            stderr().line(line.strip())
        if match := _NOT_STORED.search(line):
            stderr().line(
                f"busbar: this run is not in the history: {match['why'].strip()}; after"
                f" correcting this, run: busbar history import {report(plan)}"
            )
    cases = cases_of(report(plan))
    found: _Found = [
        (c, outcome_of(c, plan.site, plan.lane, plan.output, plan.nodes))
        for c in cases
        if not (c["fixture"] and c["result"] == "pass")
    ]
    if not cases:  # ReFrame writes its report at its end
        for path, _ in sorted(_left(plan) - earlier):
            with suppress(OSError, ValueError):  # it was killed while it wrote
                found.append((None, Outcome.read(path)))
    if message := "" if interruption.name else _broken(plan, cases, lines, reframe.killed_by):
        found.append((None, Outcome.failed("reframe", plan.lane, f"{message} (see {log})")))
    return found


def _broken(
    plan: RunPlan, cases: Sequence[dict[str, Any]], lines: Sequence[str], killed_by: str
) -> str:
    """Return why ReFrame ended early or ran no checks; empty if it succeeded."""
    left = len(set(plan.hashes) - {case["hashcode"] for case in cases})
    stopped = next((match["why"] for line in lines if (match := _STOPPED.match(line))), "")
    if killed_by:
        return f"{killed_by} ended ReFrame"
    if left and stopped:
        lost = f"{left} of {len(plan.hashes)} checks did not run"
        return f"ReFrame gave up: {stopped}; {lost}"
    if not all(case["fixture"] for case in cases):
        return ""
    said = [match for line in lines if (match := _COMPLAINT.match(line))]
    errors = [match["text"] for match in said if match["level"] == "ERROR"]
    return next(iter([*errors, *(match["text"] for match in said)]), "")


def _left(plan: RunPlan) -> set[tuple[Path, int]]:
    """Return the outcome files of the checks, with their modification times."""
    return {
        (path, path.stat().st_mtime_ns)
        for path in (plan.output / "reframe").glob(f"*/**/{RESULTS_FILE}")
    }


def report(plan: RunPlan) -> Path:
    """Return the path of ReFrame's own report."""
    return plan.output / "reframe.json"


def _arguments(plan: RunPlan) -> list[str]:
    within: list[str] = []
    if plan.within:
        partition, environment = plan.within
        system = f"{plan.site.name}:{partition}"
        within = ["--system", system, "-p", f"^{re.escape(environment)}$"]
    return [
        *("-C", str(plan.config)),
        *(part for path in plan.checks for part in ("-c", str(path))),
        *("--prefix", str(plan.output / "reframe")),
        *("--report-file", str(report(plan))),
        # Measurements must not run concurrently on one machine.
        f"--exec-policy={'async' if plan.sweep else 'serial'}",
        "--warn-as-error",
        "--nocolor",
        *(part for assignment in plan.variables for part in ("-S", assignment)),
        *(["-J", f"nodelist={plan.nodes}"] if plan.nodes and not plan.sweep else []),
        *plan.options,
        *within,
        "-r",
    ]
