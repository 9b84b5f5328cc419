# SPDX-License-Identifier: MIT
"""What all checks share: they state what they ask, Busbar judges the answer, ReFrame shows it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_after, run_before, sanity_function, variable
from reframe.core.exceptions import PerformanceError, ReframeError

from busbar import site as sites
from busbar.check.causes import explained
from busbar.check.slurm import job_end
from busbar.delivery.image import Image
from busbar.explain.containers import SLOW, image_causes
from busbar.explain.model import Cause
from busbar.judge.results import RESULTS_FILE, Outcome, Result
from busbar.judge.run import Run
from busbar.parse.text import Source
from busbar.verdict import Verdict

from .in_image import InImage, launcher_outside

SOURCES = Path(__file__).with_name("src")


class Judgement(NamedTuple):
    """What a check makes of its job's output."""

    results: list[Result]
    versions: dict[str, str]


class BusbarCheck(rfm.RunOnlyRegressionTest, special=True):
    """Runs something, judges what it printed, and leaves the judgement in ``results.json``.

    Sanity says that the run did what was asked, performance that each reading lies between band
    and limit. A check says what it asks (``valid_prog_environs`` in features, never a system) and
    gives :meth:`judgement`.
    """

    valid_systems = ["*"]
    valid_prog_environs = ["+host", "+cuda", "+rocm"]
    require_reference = True
    time_limit = "2m"
    keep_files = [RESULTS_FILE]

    #: Nodes that the job takes.
    nodes = variable(int, value=1)
    #: Files with more of what the tools said, as patterns in the stage directory.
    log_files = variable(str, value="")

    #: What the check asks for, kept for lists: ReFrame drops it from those that it prints whole.
    asked_systems = variable(typ.List[str], value=[], loggable=True)
    asked_environs = variable(typ.List[str], value=[], loggable=True)

    @run_after("init", always_last=True)
    def keep_what_is_asked(self) -> None:
        self.asked_systems = list(self.valid_systems)
        self.asked_environs = list(self.valid_prog_environs)

    @property
    def on_gpu(self) -> bool:
        """Whether the environment's stack moves GPU memory."""
        return self.current_environ.extras["stack"] != "host"

    @property
    def site(self) -> sites.Site:
        """The site that the check runs on."""
        return _site(self.current_partition.extras["site"])

    @property
    def image(self) -> Image | None:
        """The image that the check runs in; None for a delivery without."""
        facts = self.current_environ.extras.get("image")
        return Image(**facts) if facts else None

    @property
    def preflighted(self) -> Image | None:
        """The image whose preflight counts for this check."""
        return self.image

    @run_after("setup")
    def refuse_a_broken_image(self) -> None:
        """No job is spent on an image of which preflight says that it cannot run."""
        image = self.preflighted
        if self.is_dry_run() or image is None or image.preflight["verdict"] != "broken":
            return
        results = [
            Result(self.name, Verdict.FAILED, message=line["reason"])
            for line in image.preflight["lines"]
            if line["status"] == "broken"
        ]
        self.conclude(Judgement(results, {}), [])
        raise ReframeError(self.outcome.sentence())

    @run_after("setup")
    def start_the_image_as_preflight_says(self) -> None:
        """Before a check sets options of the launcher."""
        if image := self.image:
            self.job.launcher = launcher_outside(self.job.launcher, image)

    def known_causes(self) -> list[Cause]:
        """What stands before a look into the output."""
        image = self.preflighted
        return list(image_causes(image.preflight["lines"])) if image else []

    def known_run(self) -> Run:
        """What the check knows of its launches; it decides what they are compared with."""
        return Run(
            site=self.site,
            partition=self.current_partition.name,
            lane=self.current_environ.extras["lane"],
        )

    def remarks(self) -> list[dict[str, Any]]:
        """Notes of the check's own."""
        return []

    @run_before("run")
    def tell_srun_the_pmi(self) -> None:
        """Slurm must speak what the environment's MPI speaks, or each rank is alone."""
        if self.job.launcher.registered_name == "srun":
            self.job.launcher.options += self.current_environ.extras["srun"]

    @run_before("run")
    def enter_the_image(self) -> None:
        """What follows the launcher runs inside; what the check sets wins over the image."""
        if image := self.image:
            self.job.launcher = InImage(
                self.job.launcher, image, self.names_for_image, [str(SOURCES)]
            )
            for name, value in dict(self.env_vars).items():
                self.env_vars |= dict.fromkeys(image.prevailing(name), value)

    def names_for_image(self) -> list[str]:
        """Variables of the job that its commands need, but for those that the image sets."""
        own = self.image.settings if self.image else {}
        return [*(n for n in self.current_environ.env_vars if n not in own), *self.env_vars]

    @run_before("run", always_last=True)
    def let_the_launcher_end_its_ranks(self) -> None:
        """A stopped job's script must outlive its launcher, which has got the signal as well.

        ReFrame kills what is left as soon as the script is gone, and ranks are beyond its reach.
        """
        self.prerun_cmds = ["trap 'exit 143' TERM", *self.prerun_cmds]

    def across_nodes(self, names: Iterable[str] = ()) -> None:
        """For mpirun: a host file, so many ranks a node, and the variables of the other nodes.

        ``names`` are variables that single launches set. ssh must know the hosts' keys: a run
        never adds one. Slurm names the hosts; without it BUSBAR_HOSTFILE does.
        """
        launcher = self.job.launcher
        if self.nodes == 1 or launcher.registered_name != "mpirun":
            return
        source = 'cp "${BUSBAR_HOSTFILE:?names no file of hosts}" hosts'
        if self.current_partition.scheduler.registered_name != "local":
            source = 'scontrol show hostnames "$SLURM_JOB_NODELIST" >hosts'
        self.prerun_cmds = [source, *self.prerun_cmds]
        ssh = "-o BatchMode=yes -o StrictHostKeyChecking=yes"
        if self.current_environ.extras["mpi"] != "openmpi":
            self.env_vars["HYDRA_LAUNCHER"] = "ssh"
            self.env_vars["HYDRA_LAUNCHER_EXTRA_ARGS"] = shlex.quote(ssh)
            launcher.options += ["-f", "hosts", "-ppn", str(self.num_tasks_per_node)]
            return  # Hydra hands on the whole environment
        self.env_vars["PRTE_MCA_plm"] = "ssh"
        self.env_vars["PRTE_MCA_plm_ssh_args"] = shlex.quote(ssh)
        known = {*self.current_environ.env_vars, *self.env_vars, *names}
        forwarded = sorted(name for name in known if not name.startswith(("PRTE_", "OMPI_")))
        launcher.options += [
            *("--hostfile", "hosts", "-N", str(self.num_tasks_per_node)),
            *(part for name in forwarded for part in ("-x", name)),
        ]

    def leave_all_cores(self) -> None:
        """For a process that is all that the launcher knows, and that starts others."""
        srun = self.job.launcher.registered_name == "srun"
        mpich = self.current_environ.extras["mpi"] != "openmpi"
        option = ["--cpu-bind=none"] if srun else ["-bind-to" if mpich else "--bind-to", "none"]
        self.job.launcher.options += option

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        """Results of the run from the lines of standard output and standard error."""
        raise NotImplementedError

    def logs(self) -> Sequence[Path]:
        """The log files that the run left."""
        return sorted(Path(self.stagedir).glob(self.log_files)) if self.log_files else []

    @run_before("sanity")
    def judge_output(self) -> None:
        """Judges once; the sanity and performance functions only repeat it in ReFrame's terms."""
        if self.is_dry_run():
            return
        output = Path(self.stagedir, self.stdout.evaluate())
        errors = Path(self.stagedir, self.stderr.evaluate())
        results, versions = self.judgement(_lines(output), _lines(errors))
        files: list[Path | Source] = [output, errors, *self.logs()]
        slurm = self.current_partition.scheduler.registered_name != "local"
        end = job_end(self.job.jobid) if slurm else None
        passed = not any(result.verdict.is_problem for result in results)
        status = f"the job ended with exit status {self.job.exitcode}" if self.job.exitcode else ""
        # An exit status says nothing new where the output has said what is wrong.
        if end and end.problem and (passed or end.state != "FAILED"):
            results.append(Result(self.name, Verdict.FAILED, message=end.problem))
            files.append(Source.from_text("scontrol", end.line + "\n"))
        elif status and passed:
            results.append(Result(self.name, Verdict.FAILED, message=status))
        self.conclude(Judgement(results, versions), files, end.nodes if end else "")

    def conclude(self, judged: Judgement, files: Sequence[Path | Source], nodes: str = "") -> None:
        """Leaves the outcome, with the causes that ``files`` show and those of a slow image."""
        extras = self.current_environ.extras
        results = list(judged.results)
        known = self.known_causes()
        if self.preflighted and self.preflighted.preflight["verdict"] == "slow":
            slow = [cause for cause in known if cause.id == SLOW]
            results += [Result(self.name, Verdict.DEGRADED, message=c.summary) for c in slow]
        self.outcome = explained(
            Outcome(
                check=self.name,
                partition=self.current_partition.name,
                environment=self.current_environ.name,
                delivery=extras["delivery"],
                lane=extras["lane"],
                results=tuple(results),
                versions=judged.versions,
                notes=tuple(self.remarks()),
                nodes=nodes,
            ),
            files,
            self.known_run(),
            known,
        )
        self.outcome.write(Path(self.stagedir, RESULTS_FILE))
        for result in self.outcome.results:
            if result.value is not None and result.typical:
                self.add_metric(result)

    def add_metric(self, result: Result) -> None:
        """Hands one reading and its bounds to ReFrame, for its own verdict and its logs."""
        ends = result.pair.replace("->", "_to_").replace(" ", "_")
        name = f"{result.metric}_{ends}_{result.buffers.replace(' ', '')}_{result.bytes}"
        unit = "us" if result.metric == "latency" else "GB/s"
        self.perf_variables[name] = sn.make_performance_function(sn.defer(result.value), unit)
        worst, best = (result.high, result.limit) if unit == "us" else (result.low, result.limit)
        lower, upper = sorted((worst, best))
        self.reference[f"{self.current_partition.fullname}:{name}"] = (
            result.typical,
            lower / result.typical - 1,
            upper / result.typical - 1,
            unit,
        )

    @sanity_function
    def did_what_was_asked(self) -> object:
        """All but the bands: ranks, placement, data, transport, no reading missing."""
        wrong = [r for r in self.outcome.results if r.verdict.is_problem and not r.typical]
        return sn.assert_true(
            not wrong, msg=self.outcome.sentence() if wrong else "no result is wrong"
        )

    def check_performance(self) -> None:
        """ReFrame's own check, with the verdict and the cause in its message."""
        try:
            super().check_performance()
        except PerformanceError as error:
            raise PerformanceError(self.outcome.sentence()) from error


class BuildProgram(rfm.CompileOnlyRegressionTest, special=True):
    """Compiles one of our programs for each environment, for the back end of its stack."""

    sourcesdir = str(SOURCES)
    build_system = "SingleSource"
    build_locally = True

    def compiler(self) -> str:
        """What compiles it."""
        return str(self.current_environ.cxx)

    @run_before("compile")
    def set_flags(self) -> None:
        extras = self.current_environ.extras
        if "image" in extras:
            self.build_system = "CustomBuild"
            self.build_system.commands = ["true  # the image brings its programs"]
            return
        self.executable = Path(self.sourcepath).stem
        self.build_system.cxx = self.compiler()
        self.build_system.cxxflags = ["-O2", "-std=c++17", "-pthread", *extras["cxxflags"]]
        self.build_system.ldflags = extras["ldflags"]

    @sanity_function
    def built(self) -> object:
        if "image" in self.current_environ.extras:
            return sn.assert_true(True)
        program = Path(self.stagedir, self.executable)
        return sn.assert_true(program.exists(), msg=f"the compiler left no {program}")


@cache
def _site(directory: str) -> sites.Site:
    """The site as the run found it; a matrix of pairs asks for it at each reading."""
    return sites.load(directory)


def _lines(path: Path) -> list[str]:
    """Lines of a job's output; bytes that are no text are shown as such, and lose nothing else."""
    return path.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
