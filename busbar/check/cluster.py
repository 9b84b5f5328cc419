# SPDX-License-Identifier: MIT
"""The cluster that this host is of, by Slurm: its nodes, and the allocation that holds us."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass

from busbar.check.slurm import answer, hostnames
from busbar.parse.machine.sinfo import FORMAT, Node, parse_nodes

_SECONDS = 30


@dataclass(frozen=True)
class Allocation:
    """The allocation of Slurm that this process runs in."""

    job: str
    partition: str
    nodes: tuple[str, ...]


def nodes_of(partition: str) -> tuple[Node, ...]:
    """Return the nodes of a partition of Slurm; none if it does not exist."""
    return parse_nodes(
        answer(["sinfo", "--noheader", "--Node", f"--partition={partition}", FORMAT], _SECONDS)
    )


def allocation() -> Allocation | None:
    """Return the allocation of ``salloc`` or ``sbatch`` that this process runs in, if any."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job or not shutil.which("srun"):
        return None
    # Of an array, Slurm prints a line for each task.
    lines = answer(["scontrol", "--oneliner", "show", "job", job], _SECONDS).splitlines()
    text = next((line for line in lines if line.startswith(f"JobId={job} ")), "")
    partition = re.search(r"\sPartition=(?P<name>\S+)", text)
    nodes = re.search(r"\sNodeList=(?P<list>\S+)", text)
    running = re.search(r"\sJobState=RUNNING\b", text)
    if not (partition and nodes and running):
        return None
    return Allocation(job, partition["name"], hostnames(nodes["list"]))


def name() -> str:
    """Return the name of the cluster; empty if Slurm does not answer."""
    config = answer(["scontrol", "show", "config"], _SECONDS)
    line = re.search(r"^ClusterName\s*=\s*(?P<name>\S+)", config, re.MULTILINE)
    return line["name"] if line else ""
