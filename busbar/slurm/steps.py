# SPDX-License-Identifier: MIT
"""Processes on the nodes of a cluster: steps of a job, and short jobs of one node."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Sequence
from subprocess import CompletedProcess

from busbar.errors import BusbarError
from busbar.program import NO_ANSWER, call
from busbar.slurm.client import answer
from busbar.slurm.hostlist import fold

_PROBE_S = 20
_KILL_S = 5


def srun(nodes: Collection[str], per_node: int = 1, *, in_job: bool = True) -> list[str]:
    """Return the command that starts ranks on nodes; one that fails does not end the others.

    A step of the shell of ``salloc`` may hold all CPUs and memory of the nodes: steps overlap.
    """
    count = len(nodes)
    return [
        *("srun", f"--nodes={count}", f"--nodelist={fold(nodes)}", "--no-kill"),
        *(f"--ntasks={count * per_node}", f"--ntasks-per-node={per_node}"),
        *("--kill-on-bad-exit=0", "--wait=0"),
        *(["--overlap", "--mem=0"] if in_job else []),
    ]


def on_a_node(
    options: Sequence[str], command: Sequence[str], seconds: float | None = None
) -> CompletedProcess[str]:
    """Run a command as a short job of one node."""
    return call(["srun", "--quiet", "--nodes=1", "--ntasks=1", *options, *command], seconds)


def answering(nodes: Collection[str], seconds: float = _PROBE_S) -> set[str]:
    """Return the nodes of the job of this process that start a process."""
    command = [*srun(nodes), "sh", "-c", "echo $SLURMD_NODENAME"]
    return {*nodes} & {*call(command, seconds, environment_of_job()).stdout.split()}


def environment_of_job() -> dict[str, str]:
    """Return the environment of a step without what the job requested."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    kept = ("SLURM_JOB_ID", "SLURM_CONF")
    return environment | {name: os.environ[name] for name in kept if name in os.environ}


def kill_step(number: int) -> None:
    """End a step of the job of this process at once."""
    step = f"{os.environ.get('SLURM_JOB_ID', '')}.{number}"
    answer("scancel", "--signal=KILL", step, seconds=_KILL_S)


def mpi_types() -> tuple[str, ...] | None:
    """Return the types of ``srun --mpi=list``; None without srun."""
    if not shutil.which("srun"):
        return None
    done = call(["srun", "--mpi=list"])
    if done.returncode == NO_ANSWER:
        hint = "run busbar on a host where `srun --mpi=list` works"
        raise BusbarError(done.stderr, where="this host", hint=hint)
    # One name a line in Slurm 22 and 23, after "srun: " in others; then "specific ...: pmix_v4".
    text = re.sub(r"(?m)^srun: ", "", done.stdout + done.stderr)
    return tuple(re.findall(r"\b(?:pmix(?:_v\d+)?|pmi2|cray_shasta|openmpi)\b", text))
