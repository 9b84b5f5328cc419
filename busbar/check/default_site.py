# SPDX-License-Identifier: MIT
"""The site of a run that names none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from busbar.check.cluster import name as cluster_name
from busbar.detect.detected import NAME
from busbar.detect.machine import detect, match
from busbar.detect.write import write as write_site
from busbar.errors import BusbarError
from busbar.site.load import load, names, ships
from busbar.site.model import Site


def default_site(output: Path, tell: Callable[[str], None]) -> str:
    """Return the site of this cluster, or of this machine; else write its facts below ``output``.

    The site of a cluster has the cluster's name. ``tell`` prints what was chosen and why.
    """
    if cluster := cluster_name().lower():
        if cluster in names() and load(cluster).scheduler in ("slurm", "squeue"):
            tell(f"site {cluster}, by the name of this Slurm cluster")
            return cluster
        tell(
            f"only this host is tested: no site is named {cluster} as this Slurm cluster; to test"
            " it, run busbar site detect on a compute node, and give the directory to --site"
        )
    return _detected(output, tell)


def _detected(output: Path, tell: Callable[[str], None]) -> str:
    detected = detect()
    name = match(detected)
    if name and _has_scheduler(load(name), detected.site.scheduler):
        return name
    if detected.gpu_tool_failed:
        raise BusbarError(
            f"the GPUs of this machine cannot be used: {'; '.join(detected.gpu_tool_failed)}",
            hint="repair the driver, or name a site with --site (--site local checks no GPU)",
        )
    directory = output / "site" / NAME
    shutil.rmtree(directory, ignore_errors=True)
    write_site(detected.site, directory)
    what = f"site {name} has another scheduler than" if name else "no known site is"
    tell(f"{what} this machine ({detected.site.description}); its facts are in {directory}")
    for remark in detected.gpu_remarks:
        tell(remark)
    return str(directory)


def _has_scheduler(site: Site, detected: str) -> bool:
    """Whether a site can run here: shipped ones stand for systems whose scheduler may differ."""
    return site.scheduler in ("local", detected) or not ships(site)
