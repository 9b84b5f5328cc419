# SPDX-License-Identifier: MIT
"""What a job's output is worth: the outcome that is kept, and ReFrame's sanity."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function

from busbar import site as sites
from busbar.check.causes import explained, read_rest, source_of
from busbar.check.outcome import EndedJob, end_of
from busbar.data import commit
from busbar.delivery.environment import Image
from busbar.document import to_json
from busbar.engine.busy import loads
from busbar.engine.job_output import JobOutput
from busbar.engine.judge import JudgedLaunch
from busbar.engine.reading import Cause, Note
from busbar.engine.results import RESULTS_FILE, Outcome, Result, digest_of
from busbar.engine.run import Run
from busbar.history.record import HistoryRecord, node_facts
from busbar.parse.text import Source
from busbar.slurm.client import scheduler_of
from busbar.slurm.hostlist import hostnames
from busbar.slurm.jobs import JobEnd
from busbar.verdict import Verdict

from .configured import Configured


class Judgement(NamedTuple):
    """What a check makes of its job's output."""

    results: list[Result]
    versions: dict[str, str]
    launches: Sequence[JudgedLaunch] = ()
    rest: Sequence[Source | JobOutput] | None = None
    """What else the job left; None for all that it printed."""


class JudgingMixin(Configured):
    """Leaves the outcome in ``results.json``; a concrete check gives :meth:`judgement`."""

    # A variable of BusbarCheck: ReFrame takes none from a mixin that two others share.
    log_files: str
    node_count: int
    outcome: Outcome
    busbar: dict[str, object]
    outcome_digest: str

    @property
    def site(self) -> sites.Site:
        """The site that the check runs on."""
        return _site(self.partition.site)

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        """Return the results of the run, from the lines of standard output and standard error."""
        raise NotImplementedError

    def known_causes(self) -> list[Cause]:
        """Return the causes that are known before a look into the output."""
        return []

    def known_run(self) -> Run:
        """Return what the check knows of its launches; it decides what they are compared with."""
        return Run(
            site=self.site,
            check=type(self).__name__,
            partition=self.current_partition.name,
            lane=self.environment.lane,
            nodes=self.node_count,
        )

    def known_versions(self) -> Mapping[str, str]:
        """Return the versions that libraries in the output must have."""
        return self.environment.versions

    def results_of_delivery(self) -> list[Result]:
        """Return what is wrong with the delivery itself."""
        return []

    def remarks(self) -> list[Note]:
        """Return notes of the check's own."""
        return []

    def logs(self) -> Sequence[Path]:
        """Return the log files that the run left."""
        return sorted(Path(self.stagedir).glob(self.log_files)) if self.log_files else []

    @property
    def printed(self) -> tuple[Path, Path]:
        """The files of what the job printed: standard output, and standard error."""
        stdout, stderr = str(self.stdout.evaluate()), str(self.stderr.evaluate())
        return Path(self.stagedir, stdout), Path(self.stagedir, stderr)

    @run_before("sanity")
    def set_outcome(self) -> None:
        """Judge once; the sanity and performance functions only repeat it in ReFrame's terms."""
        if self.is_dry_run():
            return
        output, errors = self.printed
        scheduler = scheduler_of(self.current_partition.scheduler.registered_name)
        if end := scheduler.job_end(self.job.jobid):
            end = end.with_state(self.job.state or "")
        completing = end and end.state == self.job.state == "COMPLETING"
        limit = self.job.max_pending_time
        job = EndedJob(
            self.name,
            self.job.exitcode,
            end,
            waited=bool(
                limit and end and not end.nodes and time.time() - self.job.submit_time >= limit
            ),
            # ReFrame does not wait for it.
            held=scheduler.held_nodes(self.job.jobid) if completing else None,
        )
        if job.refused:
            self.conclude(Judgement(job.refused, {}))
            return
        judged = self.judgement(lines_of(output), lines_of(errors))
        files = judged.rest
        if files is None:
            files = [source_of(path) for path in (output, errors, *self.logs())]
        rest = read_rest(files)
        if end and end.state == "TIMEOUT":
            found = [load for each in judged.launches for load in each.judgement.loads]
            found += [load for each in rest for load in loads(each, self.known_run())]
            job = replace(job, starved=any(load.starves for load in found))
        results = end_of(job, [*judged.results, *self.elsewhere(judged.results, end)])
        if end and end.problem in (result.message for result in results):
            rest += read_rest([Source.from_text("scontrol", end.line + "\n")])
        nodes = end.nodes if end else ",".join(self.job.pin_nodes or ())
        judged = judged._replace(results=results)
        if completing:  # it still writes
            judged, rest = judged._replace(launches=()), []
        self.conclude(judged, rest, nodes)

    def elsewhere(self, results: Sequence[Result], end: JobEnd | None) -> Iterator[Result]:
        """Yield a failure if ranks say that they ran on hosts that are not of the job."""
        # Of a job that is completing, squeue lists only the nodes that are not yet free. "None
        # assigned" is what Slurm's accounting says before it knows them.
        listed = hostnames(end.nodes) if end and end.nodes else self.job.nodelist or ()
        nodes = [node for node in listed if node not in ("None", "assigned")]
        file = os.environ.get("BUSBAR_HOSTFILE", "")
        if Path(file).is_file():
            nodes += [
                line.split()[0] for line in Path(file).read_text().splitlines() if line.strip()
            ]
        # Nodes may be listed by address, and a container may have a name of its own.
        if not nodes or any(node[:1].isdigit() or ":" in node for node in nodes):
            return
        image = self.environment.image
        if image and image.runtime != "apptainer":
            return
        ran = {_short(host) for result in results for host in result.where.split(",") if host}
        if others := ran - {_short(node) for node in nodes}:
            message = f"ranks ran on {', '.join(sorted(others))}, the job on {', '.join(nodes)}"
            yield Result(self.name, Verdict.FAILED, message=message)

    def conclude(self, judged: Judgement, rest: Sequence[JobOutput] = (), nodes: str = "") -> None:
        """Keep the outcome, with the causes that its launches and the ``rest`` show.

        ``nodes`` are the nodes of the job, the place of each result that does not name it.
        """
        where = ",".join(hostnames(nodes)) if nodes else ""
        rows = (*judged.results, *self.results_of_delivery())
        facts = self.provenance(judged.versions)
        self.outcome = explained(
            Outcome(
                check=self.name,
                partition=self.current_partition.name,
                environment=self.current_environ.name,
                delivery=self.environment.delivery,
                lane=self.environment.lane,
                results=tuple(row if row.where else replace(row, where=where) for row in rows),
                versions=judged.versions,
                notes=(*self.remarks(), *_preloaded(facts)),
                nodes=nodes,
                provenance=facts,
            ),
            judged.launches,
            rest,
            self.known_run(),
            known=self.known_causes(),
            versions=self.known_versions(),
        )
        left = Path(self.stagedir, RESULTS_FILE)
        self.outcome.write(left)
        self.outcome_digest = digest_of(left)
        self.busbar = to_json(HistoryRecord.of(self.outcome))

    def provenance(self, versions: Mapping[str, str]) -> dict[str, str]:
        """Return what the run was measured with."""
        image = _image_facts(self.environment.image) if self.environment.image else {}
        ran = {_FACTS.get(name, name): version for name, version in versions.items() if version}
        facts = {"commit": commit(), **image, **self.environment.locked, **ran}
        return {**facts, **node_facts(Path(self.stagedir))}

    @sanity_function
    def did_what_was_asked(self) -> object:
        """All but the bands: ranks, placement, data, transport, no reading missing."""
        wrong = [r for r in self.outcome.results if r.verdict.is_problem and not r.typical]
        return sn.assert_true(
            not wrong, msg=self.outcome.sentence() if wrong else "no result is wrong"
        )


def _preloaded(facts: Mapping[str, str]) -> Iterator[Note]:
    """Yield what the environment of the job puts before all libraries, also of other programs."""
    for name in ("LD_PRELOAD", "LD_AUDIT"):
        if libraries := facts.get(f"env.{name}"):
            yield Note("preloaded", f"the job loads {name}={libraries} before its own libraries")


_FACTS = {"gpu_driver": "driver"}
"""Names of versions as the history has them."""


_DIGEST_SHOWN = 12


def _image_facts(image: Image) -> dict[str, str]:
    digest = {"image_digest": image.digest[:_DIGEST_SHOWN]} if image.digest else {}
    return {"image": image.reference, **digest}


def _short(host: str) -> str:
    return host.partition(".")[0]


@cache
def _site(directory: Path) -> sites.Site:
    """Load the site once; a matrix of pairs asks for it at each reading."""
    return sites.load(str(directory))


def lines_of(path: Path) -> list[str]:
    """Return a job's output; bytes that are no text are shown as such, and lose nothing else."""
    with path.open(encoding="utf-8", errors="backslashreplace") as lines:
        return [line.removesuffix("\n") for line in lines]
