# SPDX-License-Identifier: MIT
"""What all checks share: they state what they ask, Busbar judges the answer, ReFrame shows it."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.backends import getlauncher
from reframe.core.builtins import run_after, run_before, variable
from reframe.core.exceptions import PerformanceError, ReframeError
from reframe.core.launchers import JobLauncher

from busbar.delivery.environment import Image
from busbar.engine.launch import NONCE
from busbar.engine.reading import Cause
from busbar.engine.results import RESULTS_FILE, Result
from busbar.errors import BusbarError
from busbar.explain.containers import SLOW, image_causes
from busbar.parse import numbers
from busbar.parse.tables import load_yaml
from busbar.preflight.model import Status
from busbar.verdict import Verdict

from .configured import Configured
from .judging import Judgement, JudgingMixin
from .programs import OWN_SESSION, SOURCES


# ---- Jobs whose delivery is an image: what follows their launcher runs inside
class InImage(JobLauncher):
    """The host's launcher and what enters the image, or the launcher of the image itself."""

    registered_name = "in-image"

    def __init__(self, host: JobLauncher, image: Image, names: Callable[[], list[str]]) -> None:
        super().__init__()
        self._host = host
        self._image = image
        self._names = names

    def command(self, job: Any) -> list[str]:
        """As preflight says: one of the two launchers is empty."""
        launch = self._image.preflight.launch
        ranks = ["-n", str(job.num_tasks)]
        inside = [*launch.inside[:1], *ranks] if launch.inside else []
        words = [*self._image.entered(self._names(), SOURCES, job.workdir), *inside]
        if launch.outside[:1] == ("srun",):
            return [self._host.run_command(job), *map(shlex.quote, words)]
        outside = [*launch.outside[:1], *ranks] if launch.outside else []
        return list(map(shlex.quote, [*outside, *words]))


class ImageMixin(JudgingMixin):
    """Starts the ranks inside the image of the environment, if it has one."""

    @property
    def image(self) -> Image | None:
        """The image that the check runs in; None for a delivery without."""
        return self.environment.image

    @run_after("setup")
    def set_outcome_of_broken_image(self) -> None:
        """No job is spent on an image of which preflight says that it cannot run."""
        image = self.image
        if self.is_dry_run() or image is None or image.preflight.verdict is not Status.BROKEN:
            return
        results = [
            Result(self.name, Verdict.FAILED, message=line.reason)
            for line in image.preflight.lines
            if line.status is Status.BROKEN
        ]
        self.conclude(Judgement(results, {}))
        raise ReframeError(self.outcome.sentence())

    @run_after("setup")
    def set_launcher_outside(self) -> None:
        """Take the launcher that preflight names, before a check sets options of it.

        Where preflight says srun, a job of the image has no other: its mpirun is inside.
        """
        image = self.image
        outside = image.preflight.launch.outside if image else ()
        if outside[:1] == ("srun",) and self.job.launcher.registered_name != "srun":
            self.job.launcher = getlauncher("srun")()

    @run_before("run")
    def set_launcher_inside(self) -> None:
        """What follows the launcher runs inside; what the check sets wins over the image."""
        if image := self.image:
            self.job.launcher = InImage(self.job.launcher, image, self.names_for_image)
            for name, value in dict(self.env_vars).items():
                self.env_vars |= dict.fromkeys(image.prevailing(name), value)

    def names_for_image(self) -> list[str]:
        """Return the variables that the job's commands need, but for those that the image sets."""
        own = self.image.settings if self.image else {}
        return [*(n for n in self.current_environ.env_vars if n not in own), *self.env_vars]

    def known_causes(self) -> list[Cause]:
        """Return what preflight found."""
        image = self.image
        return list(image_causes(image.preflight.lines)) if image else []

    def results_of_delivery(self) -> list[Result]:
        """Return why preflight calls the image slow, if it does."""
        image = self.image
        if image is None or image.preflight.verdict is not Status.SLOW:
            return []
        return [
            Result(self.name, Verdict.DEGRADED, message=cause.summary)
            for cause in self.known_causes()
            if cause.id == SLOW
        ]


# ---- How a job starts its ranks, on one node and on several
_TABLES = load_yaml(Path(__file__).with_name("launching.yaml"))
"""By scheduler and launcher: what a job script runs, and options."""


class LaunchingMixin(Configured):
    """Sets the options of the launcher, and what it needs to reach other nodes."""

    #: Nodes of the checks that take any number: 2, 4, 8, or ``all`` nodes of the partition.
    nodes = variable(str, value="2")
    #: Nodes that the job takes.
    node_count = 1
    #: Whether the variable ``nodes`` sets their number.
    any_nodes = False
    #: Whether the job runs a program of ours, which repeats the nonce.
    own_program = False

    @run_after("setup")
    def set_nodes(self) -> None:
        """Take as many nodes as the user asks for.

        Raises ``BusbarError`` if the partition has fewer.
        """
        if not self.any_nodes:
            return
        most = self.partition.nodes
        count = most if self.nodes == "all" else numbers.whole(self.nodes)
        if count is None or not 2 <= count <= most:
            what = f"nodes={self.nodes}: partition {self.current_partition.name} has {most} nodes"
            hint = f"give 2 to {most} or all, or correct partitions[].nodes in site.yaml"
            raise BusbarError(what, where=type(self).__name__, hint=hint)
        self.node_count = count
        self.descr = self.descr.replace("two nodes", f"{count} nodes")

    @run_after("setup")
    def set_nonce(self) -> None:
        """Give the job a nonce, by which its output is told from the output of another."""
        if self.own_program:
            self.env_vars[NONCE] = secrets.token_hex(8)

    @run_after("setup")
    def set_access_of_sge(self) -> None:
        """Request the queue: ReFrame's backend of SGE leaves the options of the partition out."""
        if self.current_partition.scheduler.registered_name == "sge":
            self.job.options = [*self.current_partition.access, *self.job.options]

    @property
    def nonce(self) -> str:
        """The nonce of the job; empty for programs that are not ours."""
        return str(self.env_vars.get(NONCE, ""))

    @run_before("run")
    def set_options_of_srun(self) -> None:
        """Slurm must speak what the environment's MPI speaks, or each rank is alone.

        By default, it leaves the ranks that wait for one that died until the time limit.
        """
        launcher = self.job.launcher
        if launcher.registered_name in ("srun", "srun-step"):
            launcher.options += [*self.environment.srun, "--kill-on-bad-exit=1"]
        if launcher.registered_name == "srun-step":
            self.prerun_cmds = [_TABLES["forget"], *self.prerun_cmds]

    @run_before("run", always_last=True)
    def set_trap(self) -> None:
        """Let the script of a stopped job outlive its launcher, which got the signal as well.

        ReFrame kills what is left as soon as the script is gone, and ranks are beyond its reach.
        """
        self.prerun_cmds = ["trap 'exit 143' TERM", *self.prerun_cmds]

    @run_before("run")
    def set_session_directory(self) -> None:
        """Let no session that another mpirun left keep this one from starting."""
        one_node = self.job.launcher.registered_name == "mpirun" and self.node_count == 1
        if one_node and self.environment.mpi == "openmpi":
            self.prerun_cmds = [OWN_SESSION, *self.prerun_cmds]

    def across_nodes(self, names: Iterable[str] = ()) -> None:
        """Give mpirun a host file, the ranks per node, and the variables for the other nodes.

        ``names`` are variables that single launches set. ssh must know the hosts' keys: a run
        never adds one. Slurm names the hosts; without it BUSBAR_HOSTFILE does.
        """
        launcher = self.job.launcher
        scheduler = self.current_partition.scheduler.registered_name
        inside = scheduler == "allocation"
        if launcher.registered_name != "mpirun" or (self.node_count == 1 and not inside):
            return
        hosts = _TABLES["hosts"].get(scheduler, _TABLES["hostfile"])
        if inside:
            hosts = f"printf '%s\\n' {shlex.join(self.job.pin_nodes)} >hosts"
        self.prerun_cmds = [hosts, *self.prerun_cmds]
        ssh = "-o BatchMode=yes -o StrictHostKeyChecking=yes"
        if self.environment.mpi != "openmpi":
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
        """Bind nothing: the launcher knows one process, and that one starts others."""
        name = self.job.launcher.registered_name
        mpich = self.environment.mpi != "openmpi"
        if name.startswith(("mpirun", "mpiexec")):
            self.job.launcher.options += ["-bind-to" if mpich else "--bind-to", "none"]
        else:
            self.job.launcher.options += _TABLES["unbound"].get(name, ())


# ---- All checks
class ReportingMixin(JudgingMixin):
    """Hands judged readings to ReFrame, for its own verdict and its logs."""

    @run_before("performance")
    def set_perf_variables(self) -> None:
        """Report every reading, for ReFrame's logs; those with a band also for its verdict."""
        if self.is_dry_run():
            return
        for result in self.outcome.results:
            if result.value is not None and result.metric != "correctness":
                self.add_metric(result)

    def add_metric(self, result: Result) -> None:
        """Report one reading with its bounds, if it has any."""
        assert result.value is not None
        ends = result.pair.replace("->", "_to_").replace(" ", "_")
        name = f"{result.metric}_{ends}_{result.buffers.replace(' ', '')}_{result.bytes}"
        if repeated := sum(each.startswith(name) for each in self.perf_variables):
            name += f"_again_{repeated}"  # a tool may measure one size several times
        unit = "us" if result.metric == "latency" else "GB/s"
        self.perf_variables[name] = sn.make_performance_function(sn.defer(result.value), unit)
        if not result.typical:  # the outcome says that it is not judged
            self.reference[f"{self.current_partition.fullname}:{name}"] = (0, None, None, unit)
            return
        # A calibrated band may have no limit: a copy within host memory uses no link.
        lower, upper = (result.limit, result.high) if unit == "us" else (result.low, result.limit)
        self.reference[f"{self.current_partition.fullname}:{name}"] = (
            result.typical,
            None if lower is None else lower / result.typical - 1,
            None if upper is None else upper / result.typical - 1,
            unit,
        )

    def check_performance(self) -> None:
        """Check as ReFrame does, with the verdict and the cause in its message."""
        try:
            super().check_performance()
        except PerformanceError as error:
            raise PerformanceError(self.outcome.sentence()) from error


class BusbarCheck(
    ReportingMixin, ImageMixin, LaunchingMixin, rfm.RunOnlyRegressionTest, special=True
):
    """Runs something, judges what it printed, and leaves the judgement in ``results.json``.

    Sanity says that the run did what was asked, performance that each reading lies between band
    and limit. A check says what it asks (``valid_prog_environs`` in features, never a system) and
    gives :meth:`judgement`. Hooks of the mixins run from the last to the first: the launcher has
    its options before the image wraps it.
    """

    valid_systems = ["*"]
    valid_prog_environs = ["+host", "+cuda", "+rocm"]
    require_reference = True
    time_limit = "2m"
    keep_files = [RESULTS_FILE]

    #: More output of the tools, as file patterns in the stage directory.
    log_files = variable(str, value="")
    #: What the check asks for, kept for lists: ReFrame drops it from those that it prints whole.
    asked_systems = variable(typ.List[str], value=[], loggable=True)
    asked_environs = variable(typ.List[str], value=[], loggable=True)
    #: Readings and provenance, which ReFrame stores with the other variables (busbar history).
    busbar = variable(dict, value={}, loggable=True)
    #: The SHA-256 of the outcome that it left; `busbar check` believes no other.
    outcome_digest = variable(str, value="", loggable=True)

    @run_after("init", always_last=True)
    def set_asked_features(self) -> None:
        self.asked_systems = list(self.valid_systems)
        self.asked_environs = list(self.valid_prog_environs)

    @property
    def on_gpu(self) -> bool:
        """Whether the environment's stack moves GPU memory."""
        return self.environment.stack != "host"
