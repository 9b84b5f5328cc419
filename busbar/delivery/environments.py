# SPDX-License-Identifier: MIT
"""Find the environments of a site: each delivery with the features that it really has."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from busbar import mpi, site as sites
from busbar.data import to_install
from busbar.delivery import programs
from busbar.delivery.choice import DEFAULT_LANE, DELIVERY_ORDER, LANES, Choice
from busbar.delivery.environment import Environment
from busbar.delivery.programs import lock_of, locked_versions, packages
from busbar.engine.tool import tools
from busbar.errors import require_known
from busbar.parse.tables import refused
from busbar.site.delivery import CRAY_STACKS, GPU_STACKS, Delivery, Stack
from busbar.site.load import topology
from busbar.site.model import Site
from busbar.site.stacks import environment_directory
from busbar.slurm.steps import mpi_types


@dataclass
class Parts:
    """The parts of an environment, collected step by step."""

    path: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)
    cxxflags: list[str] = field(default_factory=list)
    ldflags: list[str] = field(default_factory=list)
    """How our own programs are compiled for the stack."""


def installed_ucx(name: str) -> Path:
    """Return the UCX libraries of a lane, as ``make setup LANE=...`` installs it."""
    require_known("unknown lane", name, LANES, "--lane")
    if name == DEFAULT_LANE:
        ucx_lib = Path(sysconfig.get_path("platlib"), "libucx", "lib")
    else:
        ucx_lib = Path(sys.prefix, "lanes", name, "libucx", "lib")
    if not (ucx_lib / "libucp.so.0").exists():
        way = to_install("wheels") if name == DEFAULT_LANE else ""
        raise refused(__file__, "not-installed" if way else "no-clone", lane=name, way=way)
    return ucx_lib


def environments(site: Site, choice: Choice, ranks_per_node: int) -> list[Environment]:
    """Return the first available environment, or all declared ones for a list.

    ``site`` has one partition (`Site.only`). Raises ``BusbarError`` if no delivery is available,
    with the reason for each.
    """
    if choice.declared and site.deliveries:
        declared = [_declared(site, delivery, choice) for delivery in reversed(site.deliveries)]
        return list({each.name: each for each in declared}.values())[::-1]
    if not _deliveries(site, choice):
        queue = site.partitions[0].name
        raise refused(__file__, "no-delivery", site.file, partition=queue, site=site.name)
    reasons: list[str] = []
    for delivery in sorted(_deliveries(site, choice), key=lambda d: DELIVERY_ORDER.index(d.kind)):
        if choice.delivery not in (None, delivery.kind):
            continue
        reason = absent(site, delivery, choice)
        if not reason:
            return [_present(site, delivery, choice, ranks_per_node)]
        reasons.append(f"{' or '.join(delivery.names())}: {reason}")
    missing = f"no delivery {choice.delivery!r}" if choice.delivery else "no delivery"
    why = "; ".join(reasons) or "none declared"
    words = {"site": site.name, "missing": missing, "reasons": why}
    raise refused(__file__, "not-available", site.file, **words)


def _deliveries(site: Site, choice: Choice) -> list[Delivery]:
    """Return the deliveries of the site, with the prefix that the user gives."""
    deliveries = list(site.deliveries)
    if choice.prefix and not any(delivery.kind == "prefix" for delivery in deliveries):
        gpus = site.node.gpus
        other = Delivery(kind="wheels", stack=gpus.stack if gpus else "host")
        base = deliveries[0] if deliveries else other
        deliveries.append(base.model_copy(update={"kind": "prefix"}))
    return deliveries


def absent(site: Site, delivery: Delivery, choice: Choice) -> str:
    """Return why a delivery is not available; empty if it is."""
    match delivery.kind:
        case "prefix":
            return "" if choice.prefix else "no --prefix was given"
        case "wheels":
            # The wheels must not replace a prefix that the user gives.
            return "--prefix was given" if choice.prefix else ""
        case "spack":
            view = spack_view(site, delivery, choice.lane)
            return "" if view else "no Spack environment is installed"
        case "modules":
            return "" if os.environ.get("LOADEDMODULES") else "no module is loaded"
        case "image":
            return "no --image was given"


def spack_view(site: Site, delivery: Delivery, lane: str) -> Path | None:
    """Return the view of the active Spack environment or, without one, of the delivery's."""
    active = os.environ.get("SPACK_ENV_VIEW")
    own = environment_directory(site, delivery, lane)
    cray = delivery.mpi == "cray-mpich"  # has no mpirun
    for view in (Path(active) if active else None, own / ".spack-env/view" if own else None):
        # Concretizing alone creates an empty view.
        if view and (view / "bin").is_dir() and not (cray and (view / "bin/mpirun").exists()):
            return view
    return None


def _declared(site: Site, delivery: Delivery, choice: Choice) -> Environment:
    lane = choice.lane if choice.lane in delivery.lanes else delivery.lanes[0]
    wheels = delivery.kind == "wheels"
    parts = Parts(features=[] if wheels else [*delivery.features])
    parts.features += ["collectives"] if not wheels or delivery.stack == "host" else []
    for tool in tools().values():
        parts.features += tool.declared(site, delivery)
    install = mpi.MpiInstall(delivery.mpi)
    parts.variables = site_variables(site, delivery, lane, install)
    if GPU_STACKS.get(delivery.stack) != "cuda":  # its prefix is only known on the machine itself
        _add_flags(parts, site, delivery.stack)
    return environment_of(site, delivery, lane, parts, install)


def _present(site: Site, delivery: Delivery, choice: Choice, ranks_per_node: int) -> Environment:
    parts = Parts()
    run_time = _add_flags(parts, site, delivery.stack)
    own_mpi = False
    if delivery.kind == "modules":
        parts.programs = programs.on_path()
        own_mpi = True
    else:
        prefix = choice.prefix if delivery.kind == "prefix" else None
        if delivery.kind == "spack":
            prefix = spack_view(site, delivery, choice.lane)
        if prefix:
            parts.programs = programs.in_prefix(prefix)
            parts.path.append(str(prefix / "bin"))
            own_mpi = "mpirun" in parts.programs
            if not own_mpi or delivery.kind == "prefix":
                parts.libraries += programs.libraries(prefix)
    parts.programs = programs.of_the_system() | parts.programs
    parts.features += programs.features(parts.programs)
    install = (
        _own_install(delivery, parts.programs) if own_mpi else mpi.MpiInstall("openmpi", own=False)
    )
    path = [*parts.path, os.environ.get("PATH", "")]
    no_compiler = install.missing_compiler(path) if own_mpi else ""
    ours = programs.compiled()
    parts.features += [] if no_compiler else ours
    delivery = delivery.model_copy(update={"mpi": install.family})
    lane = _lane(delivery, choice, own_mpi=own_mpi)
    if own_mpi:
        parts.features += _collectives(delivery, parts.programs)
    else:
        _add_wheels(parts, delivery, installed_ucx(choice.lane))
        parts.variables |= _oversubscribe(ranks_per_node)
    parts.libraries += run_time
    parts.variables |= install.variables(site)
    parts.variables |= site_variables(site, delivery, lane, install)
    if delivery.stack != "host" and (python := programs.python_with_torch()):
        parts.programs["torch"] = python
        parts.features.append("torch")
    view = spack_view(site, delivery, choice.lane) if delivery.kind == "spack" else None
    lock = lock_of(view) if delivery.kind == "spack" else None
    offered = mpi_types() if any(p.launcher == "srun" for p in site.partitions) else None
    environment = environment_of(site, delivery, lane, parts, install, offered=offered)
    return replace(
        environment,
        lacking=dict.fromkeys(ours, no_compiler) if no_compiler else {},
        versions=locked_versions(lock),
        locked=packages(lock, wheels=delivery.kind == "wheels"),
    )


def _own_install(delivery: Delivery, paths: Mapping[str, str]) -> mpi.MpiInstall:
    """Identify the MPI that a stack brings; the site may declare another one."""
    mpirun = paths.get("mpirun")
    if delivery.mpi == "cray-mpich" or not mpirun:
        return mpi.MpiInstall(delivery.mpi)
    directory = Path(mpirun).parent
    return mpi.MpiInstall(mpi.family_of(directory) or delivery.mpi, directory)


def _lane(delivery: Delivery, choice: Choice, *, own_mpi: bool) -> str:
    """Return the name of the lane; a prefix with its own MPI has its own UCX or libfabric too."""
    declared = choice.lane in delivery.lanes and delivery.kind != "prefix"
    if declared or not own_mpi:
        return choice.lane
    if choice.lane != DEFAULT_LANE:
        raise refused(__file__, "no-lane", "--lane", delivery=delivery.kind, lane=choice.lane)
    return delivery.mpi if delivery.kind == "prefix" else delivery.lanes[0]


def site_variables(
    site: Site, delivery: Delivery, lane: str, install: mpi.MpiInstall
) -> dict[str, str]:
    """Return the site's variables for a delivery that apply to its MPI."""
    chosen = sites.environment(site, stack=delivery.stack, lane=lane)
    return {name: value for name, value in chosen.items() if install.takes(name)}


def _add_flags(parts: Parts, site: Site, stack: Stack) -> list[str]:
    """Add how programs are compiled; return the library directories of the GPU run time."""
    libraries: list[str] = []
    if GPU_STACKS.get(stack) == "cuda":
        include, lib = map(str, programs.find_cuda())
        libraries = [lib]
        parts.cxxflags = ["-DGPU_CUDA", f"-I{shlex.quote(include)}"]
        parts.ldflags = [f"-L{shlex.quote(lib)}", "-lcudart"]
    elif GPU_STACKS.get(stack) == "rocm":
        rocm = str(Path(os.environ.get("ROCM_PATH", "/opt/rocm")))
        libraries = [f"{rocm}/lib"]
        quoted = shlex.quote(rocm)
        parts.cxxflags = ["-DGPU_HIP", "-D__HIP_PLATFORM_AMD__", f"-I{quoted}/include"]
        parts.ldflags = [f"-L{quoted}/lib", "-lamdhip64", "-lhsa-runtime64"]
    parts.ldflags += ["-ldl", *(_gtl(site) if stack in CRAY_STACKS else ())]
    return libraries


def _gtl(site: Site) -> list[str]:
    """Return the flags that link the GPU library of Cray MPICH, as its module names it.

    It is libmpi_gtl_hsa for AMD, libmpi_gtl_cuda for NVIDIA. Programs do not reference it: MPI
    searches for it among the loaded libraries.
    """
    gpus = site.node.gpus
    suffix = ""
    if gpus:
        number = gpus.arch.removeprefix("sm_")
        suffix = f"amd_{gpus.arch}" if gpus.vendor == "amd" else f"nvidia{number}"
    names = [f"PE_MPICH_GTL_{what}_{suffix}" for what in ("DIR", "LIBS")] if suffix else []
    return ["-Wl,--no-as-needed", *(f"${name}" for name in names)]


def _collectives(delivery: Delivery, paths: Mapping[str, str]) -> list[str]:
    if delivery.stack == "host" or delivery.mpi != "openmpi":
        return ["collectives"]
    aware = "mpirun" in paths and programs.gpu_aware_collectives(paths["mpirun"])
    return ["collectives"] if aware else []


def _add_wheels(parts: Parts, delivery: Delivery, ucx_lib: Path) -> None:
    """Add Open MPI and UCX from the package index, in this Python environment."""
    parts.path.append(str(Path(sys.executable).parent))
    # Programs that were linked elsewhere have another path of libmpi in their RPATH.
    parts.libraries = [str(ucx_lib), *parts.libraries, str(Path(sys.prefix, "lib"))]
    nccl = Path(sysconfig.get_path("platlib"), "nvidia", "nccl", "lib")
    parts.libraries += [str(nccl)] if nccl.is_dir() else []
    parts.programs = programs.in_directory(ucx_lib.parent / "bin") | parts.programs
    parts.features += programs.features(parts.programs)
    # The wheel of Open MPI is built without CUDA: UCX carries GPU buffers between ranks, but what
    # its collectives copy and add on the way dies of a GPU pointer (osu_allreduce and
    # osu_alltoall of OSU 7.4 on 4 x H200: signal 11).
    parts.features += ["collectives"] if delivery.stack == "host" else []


def environment_of(
    site: Site,
    delivery: Delivery,
    lane: str,
    parts: Parts,
    install: mpi.MpiInstall,
    *,
    offered: Sequence[str] | None = None,
) -> Environment:
    """Build the environment; ``offered`` are the types of ``srun --mpi``, None if unknown."""
    # The job's own values follow: ReFrame writes `export NAME=VALUE` into a script of bash.
    variables = {}
    if parts.path:
        variables["PATH"] = shlex.quote(":".join(parts.path)) + ":$PATH"
    if parts.libraries:
        joined = ":".join(dict.fromkeys(parts.libraries))
        variables["LD_LIBRARY_PATH"] = (
            shlex.quote(joined) + "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        )
    variables |= {name: shlex.quote(value) for name, value in parts.variables.items()}
    stack = delivery.stack
    own = [GPU_STACKS[stack], "cray"] if stack in CRAY_STACKS else [stack]
    return Environment(
        # ReFrame allows no dot in a name.
        name=f"{delivery.kind}-{lane}".replace(".", "_"),
        features=tuple(dict.fromkeys([*own, *delivery_features(delivery, parts)])),
        variables=variables,
        compiler=install.compiler,
        delivery=delivery.kind,
        stack=delivery.stack,
        lane=lane,
        mpi=install.family,
        transports=install.transports(delivery.stack, site),
        across=install.across(delivery.stack, site),
        provider=install.provider(site),
        srun=install.srun_options(site, offered),
        programs=parts.programs,
        cxxflags=tuple(parts.cxxflags),
        ldflags=tuple(parts.ldflags),
    )


def delivery_features(delivery: Delivery, parts: Parts) -> list[str]:
    """Return the features of the programs, and those that the site declares of the fabric."""
    absent = {*programs.provided()} - {*parts.features}
    return [each for each in delivery.features if each not in absent] + [
        each for each in parts.features if each not in delivery.features
    ]


def _oversubscribe(ranks: int) -> dict[str, str]:
    """Allow more ranks than cores if necessary; this disables the binding of ranks to cores."""
    if ranks <= _physical_cores():
        return {}
    return {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def _physical_cores() -> int:
    """Count the cores that this process may use; two threads of one core count once."""
    return len({topology(cpu, "thread_siblings_list") or cpu for cpu in os.sched_getaffinity(0)})
