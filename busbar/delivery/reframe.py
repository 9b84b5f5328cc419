# SPDX-License-Identifier: MIT
"""Makes the ReFrame configuration of a site from its facts; `site/<name>/reframe.py` calls it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.delivery import hardware
from busbar.delivery.environments import DEFAULT_LANE, Choice, environments
from busbar.delivery.image_environment import image_environments
from busbar.delivery.visibility import clear_visible_devices
from busbar.site.model import NodeType, Partition, Site

__all__ = ["DEFAULT_LANE", "configuration"]

_MAX_HOST_RANKS = 4  # one rank a core is enough to see every pair without an hour of pairs


def configuration(
    directory: Path, lane: str | None = None, choice: Choice | None = None
) -> dict[str, Any]:
    """ReFrame's ``site_configuration`` for the site in ``directory``.

    ``choice`` defaults to the environment variables ``BUSBAR_LANE``, ``BUSBAR_PREFIX`` and so on,
    ``lane`` goes before the first of them. Warnings of ReFrame become errors: a check file that
    fails to import would otherwise be skipped, and the run would pass without it.
    """
    os.environ.setdefault("RFM_WARN_AS_ERROR", "yes")
    site = sites.load(str(directory))
    node = site.node_type()
    chosen = choice or Choice.from_environment(lane)
    if not chosen.declared:
        clear_visible_devices(site)
    of = image_environments if chosen.image and not chosen.declared else environments
    known = of(site, chosen, _ranks_per_node(node))
    names = [environment["name"] for environment in known]
    return {
        "systems": [
            {
                "name": site.name,
                "descr": site.description,
                "hostnames": [site.hosts],
                "modules_system": "nomod",
                "partitions": [
                    _partition(site, directory, partition, names) for partition in site.partitions
                ],
            }
        ],
        "environments": known,
        "general": [_polling(site)],
        "logging": [_logging()],
    }


def _logging() -> dict[str, Any]:
    """What ReFrame says goes to its output alone; one line a check holds its readings.

    For each line of its log ReFrame gathers all that it knows of the check, 0.2 s a job in all:
    so it debugs only for those who want to see it.
    """
    fields = "result job_completion_time display_name environ jobid job_nodelist job_exitcode"
    bounds = "value unit ref lower_thres upper_thres"
    # Also among other letters, as in -rv, and cut short, as argparse allows.
    verbose = "RFM_VERBOSE" in os.environ or any(
        re.fullmatch("-[A-Za-z]*v[A-Za-z]*|--verb[a-z]*", word) for word in sys.argv
    )
    return {
        "level": "undefined" if verbose else "info",
        "handlers$": [{"type": "stream", "name": "stdout", "level": "info"}],
        "handlers": [],
        "handlers_perflog": [
            {
                "type": "filelog",
                "prefix": "%(check_system)s/%(check_partition)s",
                "format": "|".join(f"%(check_{name})s" for name in f"{fields} perfvalues".split()),
                "format_perfvars": "".join(f"%(check_perf_{name})s|" for name in bounds.split()),
            }
        ],
    }


def _polling(site: Site) -> dict[str, Any]:
    """How often a second ReFrame looks whether a job has ended.

    By itself it looks ten times a second at first and ever more seldom, so that a check of a
    minute ends seconds late. A process of this machine costs nothing to look at; Slurm is asked
    every other second at last.
    """
    often = {"poll_rate_max": 50.0, "poll_rate_decay": 0.0}
    return often if site.scheduler == "local" else {"poll_rate_min": 0.5}


def _partition(
    site: Site, directory: Path, partition: Partition, environment_names: list[str]
) -> dict[str, Any]:
    node = site.node_types[partition.node_type]
    return {
        "name": partition.name,
        "descr": f"{partition.nodes} x {partition.node_type}",
        "scheduler": _scheduler(site),
        # Without a scheduler the MPI of the environment starts its own ranks.
        "launcher": "mpirun" if partition.launcher == "local" else partition.launcher,
        # A job that Slurm starts again after a node has failed would hide that it did.
        "access": [*partition.access, *([] if site.scheduler == "local" else ["--no-requeue"])],
        "max_jobs": partition.max_jobs,
        "environs": environment_names,
        "features": [
            *partition.features,
            *hardware.gpu_features(node),
            *(["remote"] if partition.nodes > 1 else []),
        ],
        "devices": hardware.devices(node),
        "processor": hardware.processor(node),
        "container_platforms": hardware.container_platforms(site.containers),
        "extras": {
            "site": str(directory),
            "nodes": partition.nodes,
            "ranks_per_node": _ranks_per_node(node),
            "gpus": node.gpus.count if node.gpus else 0,
            "bus_ids": list(node.gpus.bus_ids or ()) if node.gpus else [],
        },
    }


def _scheduler(site: Site) -> str:
    """ReFrame's name of it: it follows jobs by sacct, where Slurm keeps accounts, or by squeue."""
    if site.scheduler != "slurm" or not shutil.which("scontrol"):
        return site.scheduler
    shown = subprocess.run(
        ["scontrol", "show", "config"], capture_output=True, text=True, check=False
    )
    none = re.search(
        r"AccountingStorageType\s*=\s*(?:accounting_storage/none|\(null\))", shown.stdout
    )
    return "squeue" if none else "slurm"


def _ranks_per_node(node: NodeType) -> int:
    """A rank for each GPU; without GPUs one for each core, two at least, a few at most."""
    if node.gpus:
        return node.gpus.count
    return max(2, min(node.cores or 2, _MAX_HOST_RANKS))
