# SPDX-License-Identifier: MIT
"""Makes the ReFrame configuration of a site from its facts; `site/<name>/reframe.py` calls it."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.errors import BusbarError
from busbar.site.model import Delivery, NodeType, Partition, Site, Stack
from busbar.site.toolkit import find_cuda

DEFAULT_LANE = "ucx-1.14"
_MAX_HOST_RANKS = 4  # one rank a core is enough to see every pair without an hour of pairs


@dataclass(frozen=True)
class Lane:
    """A choice of UCX by name, and where its libraries are."""

    name: str
    ucx_lib: Path


def installed_lane(name: str) -> Lane:
    """The lane's UCX in this Python environment; ``make setup LANE=...`` puts it there."""
    if name == DEFAULT_LANE:
        ucx_lib = Path(sysconfig.get_path("platlib"), "libucx", "lib")
    else:
        ucx_lib = Path(sys.prefix, "lanes", name, "libucx", "lib")
    if not (ucx_lib / "libucp.so.0").exists():
        raise BusbarError(
            f"lane {name!r} is not installed", hint=f"run: make setup LANE={name}", where="--lane"
        )
    return Lane(name, ucx_lib)


def configuration(directory: Path, lane: str | None = None) -> dict[str, Any]:
    """ReFrame's ``site_configuration`` for the site in ``directory``.

    ``lane`` defaults to the environment variable ``BUSBAR_LANE``, then to ucx-1.14. Warnings of
    ReFrame become errors: a check file that fails to import would otherwise be skipped, and the
    run would pass without it.
    """
    os.environ.setdefault("RFM_WARN_AS_ERROR", "yes")
    site = sites.load(str(directory))
    chosen = installed_lane(lane or os.environ.get("BUSBAR_LANE", DEFAULT_LANE))
    environments = [
        _wheels(site, delivery, chosen)
        for delivery in site.deliveries
        if delivery.kind == "wheels"
    ]
    if not environments:
        kinds = ", ".join(sorted({delivery.kind for delivery in site.deliveries}))
        raise BusbarError(
            f"site {site.name!r} has no delivery that the checks can use here (it has {kinds})",
            where=str(directory / "site.yaml"),
            hint="add a delivery of kind wheels",
        )
    names = [environment["name"] for environment in environments]
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
        "environments": environments,
    }


def _partition(
    site: Site, directory: Path, partition: Partition, environments: list[str]
) -> dict[str, Any]:
    node = site.node_types[partition.node_type]
    return {
        "name": partition.name,
        "descr": f"{partition.nodes} x {partition.node_type}",
        "scheduler": site.scheduler,
        # Without a scheduler the MPI of the environment starts its own ranks.
        "launcher": "mpirun" if partition.launcher == "local" else partition.launcher,
        "access": list(partition.access),
        "max_jobs": partition.max_jobs,
        "environs": environments,
        "features": [*partition.features, *(["remote"] if partition.nodes > 1 else [])],
        "extras": {
            "site": str(directory),
            "ranks_per_node": _ranks_per_node(node),
            "bus_ids": list(node.gpus.bus_ids or ()) if node.gpus else [],
        },
    }


def _ranks_per_node(node: NodeType) -> int:
    """A rank for each GPU; without GPUs one for each core, two at least, a few at most."""
    if node.gpus:
        return node.gpus.count
    return max(2, min(node.cores or 2, _MAX_HOST_RANKS))


def _wheels(site: Site, delivery: Delivery, lane: Lane) -> dict[str, Any]:
    """The environment of Open MPI and UCX from the package index, in this Python environment."""
    libraries = [str(lane.ucx_lib)]
    build = {"cxxflags": [], "ldflags": ["-ldl"]}
    if delivery.stack == "cuda":
        cuda = find_cuda()
        libraries.append(str(cuda.lib))
        build = {
            "cxxflags": ["-DGPU_CUDA", f"-I{cuda.include}"],
            "ldflags": [f"-L{cuda.lib}", "-lcudart", "-ldl"],
        }
    variables = {
        "PATH": f"{Path(sys.executable).parent}:$PATH",
        "LD_LIBRARY_PATH": ":".join(libraries) + "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}",
        **_open_mpi_wheel(_ranks_per_node(site.node_type())),
        **sites.environment(site, stack=delivery.stack, lane=lane.name),
    }
    return {
        # ReFrame allows no dot in a name.
        "name": f"{delivery.kind}-{lane.name}".replace(".", "_"),
        "cc": "mpicc",
        "cxx": "mpic++",
        # The wheel of Open MPI is built without CUDA: UCX carries GPU buffers between ranks, but
        # what its collectives copy and add on the way dies of a GPU pointer (osu_allreduce and
        # osu_alltoall of OSU 7.4 on 4 x H200: signal 11).
        "features": [
            delivery.stack,
            *delivery.features,
            *(["collectives"] if delivery.stack == "host" else []),
        ],
        "extras": {
            "delivery": delivery.kind,
            "stack": delivery.stack,
            "lane": lane.name,
            "transports": _transports(delivery.stack),
            **build,
        },
        "env_vars": [[name, value] for name, value in variables.items()],
    }


def _open_mpi_wheel(ranks: int) -> dict[str, str]:
    """What the Open MPI wheel needs on any machine, for ``ranks`` ranks on a node.

    It takes UCX only for devices of its own list, none of which a machine without InfiniBand has
    (``ompi_info --param opal_common ucx``): both lists are widened. UCX names the transports that
    it took at log level info; that goes to standard error, away from the program's own lines.
    """
    variables = {
        "OMPI_MCA_pml": "ucx",
        "OMPI_MCA_opal_common_ucx_tls": "any",
        "OMPI_MCA_opal_common_ucx_devices": "any",
        "UCX_LOG_LEVEL": "info",
        "UCX_LOG_FILE": "stderr",
    }
    if ranks > _physical_cores():
        # Only then: oversubscribing takes the binding of ranks to cores away.
        variables["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
    if os.geteuid() == 0:
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return variables


def _physical_cores() -> int:
    """Cores that this process may use; two hardware threads of one core count once."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.exists() else str(cpu))
    return len(cores)


def _transports(stack: Stack) -> list[str]:
    """UCX transports (``ucx_info -d``) of which one must join two ranks of a node."""
    gpu = {"cuda": ["cuda_ipc"], "rocm": ["rocm_ipc"], "cray": ["rocm_ipc"]}
    return gpu.get(stack, ["sysv", "posix", "cma", "knem", "xpmem"])
