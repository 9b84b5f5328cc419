# SPDX-License-Identifier: MIT
"""Make the ReFrame configuration of a site; `site/<name>/reframe.py` calls it."""

from __future__ import annotations

import importlib
import os
import pprint
import re
import runpy
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from busbar import mpi, site as sites
from busbar.boundary import refuse_command, refuse_foreign_code, refuse_unsafe, texts
from busbar.data import SITES, history_directory
from busbar.delivery import hardware
from busbar.delivery.choice import Choice
from busbar.delivery.environment import Environment, Image, PartitionFacts
from busbar.delivery.environments import Parts, environment_of, environments, site_variables
from busbar.delivery.image import inspect
from busbar.delivery.visibility import VARIABLES, refuse_hidden_gpus
from busbar.errors import BusbarError
from busbar.parse.tables import beside, refused
from busbar.site.backends import unusable
from busbar.site.delivery import Delivery
from busbar.site.model import NodeType, Partition, Site
from busbar.slurm.client import setting
from busbar.slurm.options import slurm_options


def image_environment(site: Site, image: Image) -> Environment:
    """Return the environment of an image, by its fingerprint and its preflight."""
    stack, lane = image.fingerprint.stack, image.fingerprint.lane
    loaded = {library.name for library in image.preflight.libraries}
    families = [family for soname, family in mpi.SONAMES.items() if soname in loaded]
    install = mpi.MpiInstall(families[0] if families else "openmpi")
    delivery = Delivery(kind="image", stack=stack, lanes=(lane,), mpi=install.family)
    parts = Parts(programs=image.programs, features=image.features)
    parts.variables = install.variables(site)
    parts.variables |= site_variables(site, delivery, lane, install)
    # Preflight has selected the PMI on a node.
    mpi_type = image.preflight.launch.mpi_type
    return replace(
        environment_of(site, delivery, lane, parts, install),
        image=image,
        srun=(f"--mpi={mpi_type}",) if mpi_type else (),
    )


FILE = "configuration.py"
_MAX_HOST_RANKS = 4  # one rank a core is enough to see every pair without an hour of pairs
_BACKENDS = ("busbar.delivery.launchers", "busbar.slurm.backends")
"""Imported in ReFrame's own process only, as they change the environment of a process."""
_ALLOCATION = {"scheduler": "allocation", "launcher": "srun-step"}
"""The backends of ``busbar.slurm.backends``."""
_MANY = 10_000
"""Jobs at once where something else limits them."""
_SLURM = ("slurm", "squeue")
_NO_REQUEUE = {"slurm": ("--no-requeue",), "squeue": ("--no-requeue",), "pbs": ("-r n",)}
Found: TypeAlias = dict[str, "list[Environment] | BusbarError"]
"""The environments of each partition, or the error why there are none."""
_CHOICE: ContextVar[Choice | None] = ContextVar("choice", default=None)
"""The choice of ``busbar check`` while it runs a site's `reframe.py`."""


def configuration(directory: Path, choice: Choice | None = None) -> dict[str, Any]:
    """Return ReFrame's ``site_configuration`` for the site in ``directory``.

    Without a choice of ``busbar check`` this is plain ReFrame, in whose own process the site's
    `reframe.py` runs: the ``BUSBAR_*`` variables choose, and that process is prepared for jobs.
    """
    choice = choice or _CHOICE.get()
    if choice:
        return _configuration(directory, choice)
    try:
        config = _configuration(directory, Choice.from_variables())
    except BusbarError as error:
        # ReFrame shows a traceback for every exception that is not its own.
        sys.exit(f"{directory.name}: {error}; to list the checks only, set BUSBAR_DECLARED=1")
    _prepare_process()
    return config


def _configuration(directory: Path, choice: Choice) -> dict[str, Any]:
    refuse_unsafe(directory.resolve(), "--site")
    site = _usable(sites.load(str(directory)), choice)
    image = None
    if choice.image and not choice.declared:
        image = inspect(choice.image, site, choice.inject)
    found: Found = {}
    for partition in site.partitions:
        alone = site.only(partition.name)
        try:
            if image:
                found[partition.name] = [image_environment(alone, image)]
            else:
                found[partition.name] = environments(alone, choice, _ranks_per_node(alone.node))
        except BusbarError as error:
            found[partition.name] = error
    errors = [each for each in found.values() if isinstance(each, BusbarError)]
    if len(errors) == len(found):
        raise errors[0]
    config = site_configuration(site, directory, found, choice)
    for text in texts(config):
        try:
            refuse_command(text)
        except ValueError as error:
            what, _, hint = str(error).partition("; ")
            raise BusbarError(what, where=site.name, hint=hint) from error
    return config


def _usable(site: Site, choice: Choice) -> Site:
    """Refuse a site whose jobs cannot run here; to list its checks, no scheduler is needed."""
    reason = unusable(site.scheduler)
    if choice.declared:
        return site.model_copy(update={"scheduler": "local"}) if reason else site
    if reason:
        words = {"scheduler": site.scheduler, "reason": reason}
        raise refused(__file__, "no-scheduler", site.file, **words)
    refuse_hidden_gpus(site)
    return site


def site_configuration(
    site: Site, directory: Path, found: Found, choice: Choice | None = None
) -> dict[str, Any]:
    """Return ReFrame's ``site_configuration`` with these environments."""
    choice = choice or Choice()
    return {
        "systems": [
            {
                "name": site.name,
                "descr": site.description,
                "hostnames": [site.hosts],
                "modules_system": "nomod",
                "partitions": [
                    _partition(site, directory, partition, found[partition.name], choice)
                    for partition in site.partitions
                ],
            }
        ],
        "environments": _environments(site, found),
        "general": [_polling(site)],
        "storage": [{"enable": True, "sqlite_db_file": str(history_directory() / "results.db")}],
        "logging": [_logging()],
    }


def _environments(site: Site, found: Found) -> list[dict[str, Any]]:
    """Return ReFrame's ``environments``: the first of each name, then what other partitions have.

    ReFrame refuses a name that has no entry for all systems.
    """
    first: dict[str, dict[str, Any]] = {}
    others: list[dict[str, Any]] = []
    for partition, present in found.items():
        for environment in present if isinstance(present, list) else ():
            entry = environment.to_reframe()
            if entry != first.setdefault(environment.name, entry):
                others.append(entry | {"target_systems": [f"{site.name}:{partition}"]})
    return [*first.values(), *others]


def load(site_file: Path, choice: Choice) -> dict[str, Any]:
    """Run the `reframe.py` next to ``site_file`` for one choice; return its configuration."""
    file = site_file.with_name("reframe.py")
    if not file.is_file():
        raise refused(__file__, "no-configuration", file, sites=SITES, parent=site_file.parent)
    refuse_foreign_code(file)
    token = _CHOICE.set(choice)
    try:
        return dict(runpy.run_path(str(file))["site_configuration"])
    except BusbarError:
        raise
    except Exception as error:
        words = {"kind": type(error).__name__, "error": error, "sites": SITES}
        raise refused(__file__, "broken-configuration", file, **words) from error
    finally:
        _CHOICE.reset(token)


def write(config: Mapping[str, Any], directory: Path) -> Path:
    """Write a configuration that ``reframe -C`` reads; return the file."""
    file = directory / FILE
    file.write_text(
        f"# ReFrame configuration of this run, written by busbar check.\n"
        f"import {', '.join(_BACKENDS)}\n\n"
        f"site_configuration = {pprint.pformat(dict(config), width=100, sort_dicts=False)}\n",
        encoding="utf-8",
    )
    return file


def _prepare_process() -> None:
    for module in _BACKENDS:
        importlib.import_module(module)
    # ReFrame only warns about a check file that fails to import, and passes without it.
    os.environ.setdefault("RFM_WARN_AS_ERROR", "yes")
    for name in VARIABLES:
        os.environ.pop(name, None)


def _logging() -> dict[str, Any]:
    """Log to standard output, and one line per check with its readings to the performance log.

    Debug logging costs 0.2 s per job, because ReFrame collects all attributes of the check for
    each line: it is enabled only with -v.
    """
    # Also among other letters, as in -rv, and abbreviated, as argparse allows.
    verbose = "RFM_VERBOSE" in os.environ or any(
        re.fullmatch("-[A-Za-z]*v[A-Za-z]*|--verb[a-z]*", word) for word in sys.argv
    )
    return {"level": "undefined" if verbose else "info", **beside(__file__)["logging"]}


def _polling(site: Site) -> dict[str, Any]:
    """Set how often per second ReFrame polls a job.

    By default it polls ten times a second at first and then less and less, so that a check of a
    minute ends seconds late. Local processes cost nothing to poll; Slurm is polled every other
    second at least.
    """
    often = {"poll_rate_max": 50.0, "poll_rate_decay": 0.0}
    return often if site.scheduler == "local" else {"poll_rate_min": 0.5}


def _partition(
    site: Site,
    directory: Path,
    partition: Partition,
    present: list[Environment] | BusbarError,
    choice: Choice,
) -> dict[str, Any]:
    node = site.node_types[partition.node_type]
    nodes = choice.allocation or partition.nodes
    return {
        "name": partition.name,
        "descr": f"{nodes} x {partition.node_type}",
        **_backends(site, partition, choice),
        "max_jobs": _jobs_at_once(partition, choice),
        "environs": [each.name for each in present] if isinstance(present, list) else [],
        "features": [
            *partition.features,
            *hardware.gpu_features(node),
            *(["remote"] if nodes > 1 else []),
        ],
        "devices": hardware.devices(node),
        "processor": hardware.processor(node),
        "container_platforms": hardware.container_platforms(site.containers),
        "extras": PartitionFacts(
            site=directory,
            nodes=nodes,
            ranks_per_node=_ranks_per_node(node),
            gpus=node.gpus.count if node.gpus else 0,
            bus_ids=tuple(node.gpus.bus_ids or ()) if node.gpus else (),
            no_environment=str(present) if isinstance(present, BusbarError) else "",
        ).to_reframe(),
    }


def _backends(site: Site, partition: Partition, choice: Choice) -> dict[str, Any]:
    """Return what submits jobs and what starts their ranks."""
    # Without a scheduler, the ranks are started by the mpirun of the environment.
    launcher = "mpirun" if partition.launcher == "local" else partition.launcher
    if choice.allocation:
        return _ALLOCATION | ({} if launcher == "srun" else {"launcher": launcher})
    return {
        "scheduler": _scheduler(site),
        "launcher": launcher,
        **_access(site, partition, choice.access),
    }


def _jobs_at_once(partition: Partition, choice: Choice) -> int:
    """Return how many jobs may be submitted; a sweep is limited by the site or by its nodes."""
    if choice.allocation:
        return _MANY
    limited = "max_jobs" in partition.model_fields_set
    return _MANY if choice.sweep and not limited else partition.max_jobs


def _access(site: Site, partition: Partition, added: Sequence[str]) -> dict[str, Any]:
    """Return the options of the scheduler; for ssh, the other words are the hosts."""
    hosts = [word for word in partition.access if not word.startswith("-")]
    if site.scheduler == "ssh":
        options = [word for word in partition.access if word.startswith("-")]
        return {"access": options, "sched_options": {"ssh_hosts": hosts}}
    options = [*partition.access, *added]
    if site.scheduler in _SLURM:
        options = slurm_options(partition, added)
    # A job that the scheduler requeues after a node failure would hide the failure.
    options += _NO_REQUEUE.get(site.scheduler, ())
    # busbar.slurm.backends cancels the jobs that wait for a node in vain.
    ignored = {"sched_options": {"ignore_reqnodenotavail": True}}
    return {"access": options} | (ignored if site.scheduler in _SLURM else {})


def _scheduler(site: Site) -> str:
    """Return ReFrame's scheduler: ``slurm`` (sacct) with accounting, otherwise ``squeue``."""
    if site.scheduler != "slurm" or not shutil.which("scontrol"):
        return site.scheduler
    no_accounting = ("accounting_storage/none", "(null)")
    return "squeue" if setting("AccountingStorageType") in no_accounting else "slurm"


def _ranks_per_node(node: NodeType) -> int:
    """Return one rank per GPU; without GPUs, one per core, but at least 2 and at most 4."""
    if node.gpus:
        return node.gpus.count
    return max(2, min(node.cores or 2, _MAX_HOST_RANKS))
