# SPDX-License-Identifier: MIT
"""One night from its first stage to its report; no two stages run at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from busbar.check.processes import Interruption
from busbar.cluster.measure.store import RESULTS
from busbar.cluster.nightly.night import Night, NightlyDocument, NightStage, StageName, finished
from busbar.cluster.nightly.process import run
from busbar.cluster.nightly.stages import SWEEP_VERDICT, NightJob, looks, measure, sample_of
from busbar.cluster.nodes.record import FILE as NODES, update
from busbar.data import busbar
from busbar.engine.results import RESULTS_FILE
from busbar.errors import BusbarError, file_error
from busbar.verdict import Verdict

_REPORT_S = 600
_MOST = 10
"""Nodes in the summary."""


@dataclass(frozen=True)
class Runner:
    """Runs what is left of a night."""

    job: NightJob
    sample: int
    interruption: Interruption
    tell: Callable[[str], None]

    def run(self, state: NightlyDocument) -> NightlyDocument:
        """Run the stages that have not finished, and the report; the state is saved after each."""
        state = replace(state, output=str(self.job.night.directory))
        self._save(state)
        for name in state.names:
            earlier = state.stage(name)
            if earlier and earlier.finished:
                self.tell(f"{name}: finished before: {earlier.verdict}")
                continue
            if self.interruption.name:
                break
            state = state.with_stage(self._stage(name, state))
            self._save(state)
        if self.interruption.name:
            state = replace(state, interrupted=self.interruption.name)
        else:
            state = self._report(self._records(replace(state, finished=True)))
        self._save(state)
        return state

    def _stage(self, name: StageName, state: NightlyDocument) -> NightStage:
        nodes = [node for node in self.job.grant.usable if node not in state.left_out]
        if name == "sample":
            nodes = list(sample_of(nodes, self.sample, datetime.fromisoformat(state.begun).date()))
        if not nodes:
            return NightStage(name, Verdict.NOT_RUN, "no node passed the gate", finished=False)
        deadline = self.job.deadline
        if deadline is not None and time.monotonic() >= deadline:
            return NightStage(name, Verdict.NOT_RUN, "--max-hours was reached", finished=False)
        self.tell(f"{name}: {len(nodes)} nodes; log: {self.job.night.path(f'{name}.log')}")
        stage = measure(name, self.job, nodes)
        self.tell(f"{name}: {stage.verdict}: {stage.message}")
        return stage

    def _records(self, state: NightlyDocument) -> NightlyDocument:
        """Combine the results of all stages per node; on an error the night keeps its verdict."""
        job = self.job
        try:
            seen = list(looks(job, state.site, self.tell))
            document = update(job.night.directory.parent, seen, job.policy, self.tell, {})
        except BusbarError as error:
            self.tell(f"no records of the nodes: {error.alone()}")
            return state
        wrong = [one.text for one in document.nodes if one.next]
        more = [f"busbar node lists {len(wrong) - _MOST} more nodes"] if wrong[_MOST:] else []
        return replace(state, records=(*wrong[:_MOST], *more))

    def _report(self, state: NightlyDocument) -> NightlyDocument:
        """Write the report; a night without one keeps its verdict."""
        night = self.job.night
        output = night.path("report")
        words = _report_words(self.job, state)
        if not words:
            return state
        command = busbar("report", *words, f"--output={output}", "--mail")
        out, log = night.path("report.out"), night.path("report.log")
        ended = run(command, out, log, time.monotonic() + _REPORT_S)
        if ended.status:
            self.tell(f"report: exited with status {ended.status}: {ended.said}")
            return state
        lines = out.read_text(encoding="utf-8", errors="replace").splitlines()
        # Without checks, its first line is a verdict on the sweep, which the stage has said.
        checked = (night.path("check") / RESULTS_FILE).exists()
        summary = tuple(lines) if checked else ()
        return replace(state, report=str(output / "index.html"), summary=summary)

    def _save(self, state: NightlyDocument) -> None:
        night = self.job.night
        with file_error(
            "cannot be written", night.directory, "free some space, and continue with --resume"
        ):
            night.save(state)


def _report_words(job: NightJob, state: NightlyDocument) -> Sequence[str]:
    """Return what the report shows: this night, and what the night before knew; empty if nothing
    was measured."""
    words: list[str] = []
    night = job.night
    results = night.path("check") / RESULTS_FILE
    if results.exists():
        words += [*map(str, _before(night, state)), str(results)]
    if (stage := state.stage("sweep")) and stage.verdict is not Verdict.NOT_RUN:
        words.append(f"--sweep={night.path(SWEEP_VERDICT)}")
        rows = night.path("sweep") / RESULTS
        words += [f"--rows={rows}"] if rows.exists() else []
    nodes = night.directory.parent / NODES
    words += [f"--nodes={nodes}"] if words and nodes.exists() else []
    named = [f"--site={job.site}"] if Path(job.site).name == state.site else []
    return [*words, *named] if words else []


def _before(night: Night, state: NightlyDocument) -> list[Path]:
    """Return the results of the last finished night of this site and partition."""
    found = [
        each.path("check") / RESULTS_FILE
        for each, other in finished(night.directory.parent)
        if (other.site, other.partition) == (state.site, state.partition)
        and each.directory != night.directory
    ]
    return [path for path in found if path.exists()][-1:]
