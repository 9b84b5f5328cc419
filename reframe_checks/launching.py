# SPDX-License-Identifier: MIT
"""How a job starts its ranks, on one node and on several."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable

from reframe.core.builtins import run_after, run_before, variable

from busbar.engine.launch import NONCE
from busbar.errors import BusbarError
from busbar.parse import numbers
from busbar.parse.tables import beside

from .configured import Configured
from .programs import OWN_SESSION

_TABLES = beside(__file__)
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
            raise BusbarError(
                f"nodes={self.nodes}: partition {self.current_partition.name} has {most} nodes",
                where=type(self).__name__,
                hint=f"give 2 to {most} or all, or correct partitions[].nodes in site.yaml",
            )
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
    def set_pmi_of_srun(self) -> None:
        """Slurm must speak what the environment's MPI speaks, or each rank is alone."""
        launcher = self.job.launcher
        if launcher.registered_name in ("srun", "srun-step"):
            launcher.options += self.environment.srun
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
