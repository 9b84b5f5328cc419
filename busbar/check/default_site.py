# SPDX-License-Identifier: MIT
"""The default site of a run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from busbar.detect.detected import NAME
from busbar.detect.gather import Outputs
from busbar.detect.machine import compose, detect, match
from busbar.detect.write import write as write_site
from busbar.parse.tables import refused
from busbar.site.load import load, names, ships
from busbar.site.model import Site
from busbar.slurm.client import cluster_name


def default_site(
    output: Path, tell: Callable[[str], None], gathered: Future[Outputs] | None = None
) -> str:
    """Return the site of this cluster or machine, or write a detected one below ``output``.

    A cluster's site has the name of the cluster. ``tell`` prints the choice and the reason;
    ``gathered`` is the output of this machine's tools, if they are already running.
    """
    if cluster := cluster_name().lower():
        if cluster in names() and load(cluster).scheduler in ("slurm", "squeue"):
            tell(f"site {cluster}, by the name of this Slurm cluster")
            return cluster
        found = _detected(output, tell, gathered, on_cluster=True)
        what = "testing only this host" if load(found).scheduler == "local" else f"site {found}"
        tell(
            f"{what}: no site has the name of this Slurm cluster, {cluster}; to test the cluster,"
            f" run busbar site detect --output DIR/{cluster}, and pass it with --site"
        )
        return found
    return _detected(output, tell, gathered)


def _detected(
    output: Path,
    tell: Callable[[str], None],
    gathered: Future[Outputs] | None,
    *,
    on_cluster: bool = False,
) -> str:
    """Return the site of this machine; on a cluster without a site, of this host only."""
    detected = compose(gathered.result()) if gathered else detect()
    site = _alone(detected.site) if on_cluster else detected.site
    name = match(detected)
    # The system of a shipped site may have a different scheduler.
    if name and (load(name).scheduler in ("local", site.scheduler) or not ships(load(name))):
        return name
    if detected.gpu_tool_failed:
        raise refused(__file__, "no-gpus", why="; ".join(detected.gpu_tool_failed))
    directory = output / "site" / NAME
    shutil.rmtree(directory, ignore_errors=True)
    write_site(site, directory)
    what = f"site {name} has a different scheduler than" if name else "no known site matches"
    tell(f"{what} this machine ({site.description}); its facts are in {directory}")
    for remark in detected.gpu_remarks:
        tell(remark)
    return str(directory)


def _alone(site: Site) -> Site:
    """Return the site of one host, without the scheduler of its cluster."""
    update = {"launcher": "mpirun", "access": (), "nodes": 1}
    partitions = tuple(each.model_copy(update=update) for each in site.partitions)
    return site.model_copy(update={"scheduler": "local", "partitions": partitions})
