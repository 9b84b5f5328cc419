# SPDX-License-Identifier: MIT
"""ReFrame environments: a stack by one delivery, with the features that it really has."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from busbar import mpi
from busbar import site as sites
from busbar.delivery import programs
from busbar.delivery.toolkit import find_cuda
from busbar.errors import BusbarError
from busbar.site.model import Delivery, Site, Stack

DEFAULT_LANE = "ucx-1.14"
LANES = (DEFAULT_LANE, "ucx-current")
DELIVERY_ORDER = ("prefix", "wheels", "spack", "modules", "image")


@dataclass(frozen=True)
class Choice:
    """What the user asks for, from the command line or from ``BUSBAR_*`` variables."""

    lane: str = DEFAULT_LANE
    prefix: Path | None = None
    """A directory that already holds benchmarks."""
    delivery: str | None = None
    """One kind of delivery; None: the first that is here."""
    declared: bool = False
    """Take the site's word for what is there, to list its checks on another machine."""
    image: str | None = None
    """A SIF, a sandbox, an archive or a name in a container store that the checks run in."""
    inject: tuple[str, ...] = ()
    """Library directories of the host that the image takes before its own."""
    image_facts: Path | None = None
    """Where ``busbar check`` has left what it found out of the image."""

    @classmethod
    def from_environment(cls, lane: str | None = None) -> Choice:
        """The variables of :meth:`to_environment`."""
        prefix = os.environ.get("BUSBAR_PREFIX")
        inject = os.environ.get("BUSBAR_INJECT") or ""
        facts = os.environ.get("BUSBAR_IMAGE_FACTS")
        return cls(
            lane=lane or os.environ.get("BUSBAR_LANE") or DEFAULT_LANE,
            prefix=Path(prefix).absolute() if prefix else None,
            delivery=os.environ.get("BUSBAR_DELIVERY") or None,
            declared=bool(os.environ.get("BUSBAR_DECLARED")),
            image=os.environ.get("BUSBAR_IMAGE") or None,
            inject=tuple(inject.split(":")) if inject else (),
            image_facts=Path(facts) if facts else None,
        )

    def to_environment(self) -> dict[str, str]:
        """What :meth:`from_environment` reads."""
        return {
            "BUSBAR_LANE": self.lane,
            "BUSBAR_PREFIX": str(self.prefix or ""),
            "BUSBAR_DELIVERY": self.delivery or "",
            "BUSBAR_DECLARED": "1" if self.declared else "",
            "BUSBAR_IMAGE": self.image or "",
            "BUSBAR_INJECT": ":".join(self.inject),
            "BUSBAR_IMAGE_FACTS": str(self.image_facts or ""),
        }


@dataclass(frozen=True)
class Lane:
    """A choice of UCX by name, and where its libraries are."""

    name: str
    ucx_lib: Path


@dataclass
class Parts:
    """What an environment is put together from."""

    path: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)


def installed_lane(name: str) -> Lane:
    """The lane's UCX in this Python environment; ``make setup LANE=...`` puts it there."""
    if name not in LANES:
        raise BusbarError(
            f"there is no lane {name!r}", hint=f"there are: {', '.join(LANES)}", where="--lane"
        )
    if name == DEFAULT_LANE:
        ucx_lib = Path(sysconfig.get_path("platlib"), "libucx", "lib")
    else:
        ucx_lib = Path(sys.prefix, "lanes", name, "libucx", "lib")
    if not (ucx_lib / "libucp.so.0").exists():
        extra = ", or install busbar with its extra `wheels`" if name == DEFAULT_LANE else ""
        raise BusbarError(
            f"lane {name!r} is not installed",
            hint=f"run: make setup LANE={name}{extra}",
            where="--lane",
        )
    return Lane(name, ucx_lib)


def environments(site: Site, choice: Choice, ranks_per_node: int) -> list[dict[str, Any]]:
    """The environments of a site: all declared ones for a list, the one that is here for a run.

    Raises ``BusbarError`` when none of the site's deliveries is here, with the reason of each.
    """
    if choice.declared:
        return [_declared(site, delivery, choice) for delivery in site.deliveries]
    reasons: list[str] = []
    for delivery in sorted(_deliveries(site, choice), key=lambda d: DELIVERY_ORDER.index(d.kind)):
        if choice.delivery not in (None, delivery.kind):
            continue
        why = absent(site, delivery, choice)
        if not why:
            return [_present(site, delivery, choice, ranks_per_node)]
        reasons.append(f"{delivery.kind}: {why}")
    wanted = f"no delivery {choice.delivery!r}" if choice.delivery else "no delivery"
    raise BusbarError(
        f"site {site.name!r} has {wanted} that is here ({'; '.join(reasons) or 'none declared'})",
        where=str(site.directory / "site.yaml") if site.directory else "",
        hint="give --prefix DIR with installed benchmarks, or install one of them",
    )


def _deliveries(site: Site, choice: Choice) -> list[Delivery]:
    """The site's own; a directory that the user names is one of them on any site."""
    found = list(site.deliveries)
    if choice.prefix and not any(delivery.kind == "prefix" for delivery in found):
        found.append(found[0].model_copy(update={"kind": "prefix"}))
    return found


def absent(site: Site, delivery: Delivery, choice: Choice) -> str:
    """Why a delivery cannot be used here; empty when it can."""
    match delivery.kind:
        case "prefix":
            return "" if choice.prefix else "no --prefix was given"
        case "wheels":
            # A directory of benchmarks that was named must not be left out in silence.
            return "--prefix was given" if choice.prefix else ""
        case "spack":
            return "" if spack_view(site, choice.lane) else "no Spack environment is installed"
        case "modules":
            return "" if os.environ.get("LOADEDMODULES") else "no module is loaded"
        case "image":
            return "no --image was given"


def spack_view(site: Site, lane: str) -> Path | None:
    """The view of the active Spack environment, else that of the site's own."""
    active = os.environ.get("SPACK_ENV_VIEW")
    own = site.directory / ("" if lane == DEFAULT_LANE else lane) if site.directory else None
    for view in (Path(active) if active else None, own / ".spack-env/view" if own else None):
        if view and view.is_dir():
            return view
    return None


def _declared(site: Site, delivery: Delivery, choice: Choice) -> dict[str, Any]:
    lane = choice.lane if choice.lane in delivery.lanes else delivery.lanes[0]
    parts = Parts(features=[*delivery.features, "collectives"])
    if site.fabric and site.fabric.provider in ("efa", "cxi") and "xccl" in delivery.features:
        parts.features.append("ofi-tests")  # they come with the network plugin
    if delivery.kind in ("spack", "image") and {"osu", "xccl"} <= set(delivery.features):
        parts.features.append("osu-xccl")  # the manifests build OSU with them
    parts.features += ["ucx"] if (delivery.kind, delivery.mpi) == ("spack", "openmpi") else []
    if delivery.kind == "wheels":
        parts.features = ["ucx", *(["collectives"] if delivery.stack == "host" else [])]
    if site.fabric and site.fabric.provider in ("efa", "cxi") and delivery.kind != "image":
        parts.features.append("libfabric")  # its tests come with the provider
    parts.features += _OURS[: 1 if delivery.kind == "image" else None]
    starter = mpi.MpiInstall(delivery.mpi)
    parts.variables = set_by_site(site, delivery, lane, starter)
    extras = mpi_extras(site, delivery, starter)
    # Where CUDA is, only the machine itself can say.
    nothing: dict[str, list[str]] = {"cxxflags": [], "ldflags": []}
    build = nothing if delivery.stack == "cuda" else _build(site, delivery.stack)[0]
    return environment_of(delivery, lane, parts, build, extras)


def _present(
    site: Site, delivery: Delivery, choice: Choice, ranks_per_node: int
) -> dict[str, Any]:
    parts = Parts()
    build, cuda_lib = _build(site, delivery.stack)
    own_mpi = False
    if delivery.kind == "modules":
        parts.programs = programs.on_path()
        own_mpi = True
    else:
        prefix = choice.prefix if delivery.kind == "prefix" else None
        if delivery.kind == "spack":
            prefix = spack_view(site, choice.lane)
        if prefix:
            parts.programs = programs.in_prefix(prefix)
            parts.path.append(str(prefix / "bin"))
            own_mpi = "mpirun" in parts.programs
            if not own_mpi or delivery.kind == "prefix":
                parts.libraries += programs.libraries(prefix)
    parts.programs = programs.of_the_system() | parts.programs
    parts.features += programs.features(parts.programs)
    starter = (
        _starter(delivery, parts.programs) if own_mpi else mpi.MpiInstall("openmpi", own=False)
    )
    searched = [*parts.path, os.environ.get("PATH", "")]
    lacking = starter.without_compiler(searched) if own_mpi else ""
    parts.features += [] if lacking else _OURS
    delivery = delivery.model_copy(update={"mpi": starter.family})
    lane = _lane(delivery, choice, own_mpi=own_mpi)
    if own_mpi:
        parts.features += _collectives(delivery, parts.programs)
    else:
        _add_wheels(parts, delivery, installed_lane(choice.lane))
        parts.variables |= _oversubscribe(ranks_per_node)
    parts.libraries += cuda_lib
    parts.variables |= starter.variables(slurm=site.scheduler != "local")
    parts.variables |= set_by_site(site, delivery, lane, starter)
    if delivery.stack != "host" and (python := programs.python_with_torch()):
        parts.programs["torch"] = python
        parts.features.append("torch")
    offered = mpi.srun_types() if any(p.launcher == "srun" for p in site.partitions) else None
    extras = mpi_extras(site, delivery, starter, offered)
    extras["lacking"] = dict.fromkeys(_OURS, lacking) if lacking else {}
    return environment_of(delivery, lane, parts, build, extras)


def _starter(delivery: Delivery, found: Mapping[str, str]) -> mpi.MpiInstall:
    """The MPI of a stack that brings its own: what is there counts, not what was declared."""
    mpirun = found.get("mpirun")
    if delivery.mpi == "cray-mpich" or not mpirun:
        return mpi.MpiInstall(delivery.mpi)
    directory = Path(mpirun).parent
    return mpi.MpiInstall(mpi.family_of(directory) or delivery.mpi, directory)


def _lane(delivery: Delivery, choice: Choice, *, own_mpi: bool) -> str:
    """The lane's name; a directory that brings its own MPI brings its own UCX or libfabric."""
    declared = choice.lane in delivery.lanes and delivery.kind != "prefix"
    if declared or not own_mpi:
        return choice.lane
    if choice.lane != DEFAULT_LANE:
        raise BusbarError(
            f"there is no lane {choice.lane!r} in the delivery {delivery.kind}",
            hint="leave --lane out",
            where="--lane",
        )
    return delivery.mpi if delivery.kind == "prefix" else delivery.lanes[0]


def set_by_site(
    site: Site, delivery: Delivery, lane: str, starter: mpi.MpiInstall
) -> dict[str, str]:
    chosen = sites.environment(site, stack=delivery.stack, lane=lane)
    return {name: value for name, value in chosen.items() if starter.takes(name)}


def mpi_extras(
    site: Site, delivery: Delivery, starter: mpi.MpiInstall, offered: Sequence[str] | None = None
) -> dict[str, Any]:
    """What checks read of the MPI."""
    return {
        "mpi": starter.family,
        "compiler": starter.compiler,
        "transports": list(starter.transports(delivery.stack)),
        "across": list(starter.across(delivery.stack, site)),
        "provider": starter.provider(site),
        "srun": starter.srun_options(site, offered),
    }


def _build(site: Site, stack: Stack) -> tuple[dict[str, list[str]], list[str]]:
    """Flags for our own programs, and the library directories of the GPU's run time."""
    if stack == "cuda":
        cuda = find_cuda()
        return {
            "cxxflags": ["-DGPU_CUDA", f"-I{cuda.include}"],
            "ldflags": [f"-L{cuda.lib}", "-lcudart", "-ldl"],
        }, [str(cuda.lib)]
    if stack in ("rocm", "cray"):
        rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
        return {
            "cxxflags": ["-DGPU_HIP", "-D__HIP_PLATFORM_AMD__", f"-I{rocm}/include"],
            "ldflags": [
                *(f"-L{rocm}/lib", "-lamdhip64", "-lhsa-runtime64", "-ldl"),
                *(_gtl(site) if stack == "cray" else ()),
            ],
        }, [f"{rocm}/lib"]
    return {"cxxflags": [], "ldflags": ["-ldl"]}, []


def _gtl(site: Site) -> list[str]:
    """Cray MPICH's GPU library, where its module says that it is.

    A program has no reference to it: MPI looks for it among the libraries that are loaded.
    """
    gpus = site.node.gpus
    names = [f"PE_MPICH_GTL_{what}_amd_{gpus.arch}" for what in ("DIR", "LIBS")] if gpus else []
    return ["-Wl,--no-as-needed", *(f"${name}" for name in names)]


def _collectives(delivery: Delivery, found: Mapping[str, str]) -> list[str]:
    if delivery.stack == "host" or delivery.mpi != "openmpi":
        return ["collectives"]
    aware = "mpirun" in found and programs.gpu_aware_collectives(found["mpirun"])
    return ["collectives"] if aware else []


def _add_wheels(parts: Parts, delivery: Delivery, lane: Lane) -> None:
    """Open MPI and UCX from the package index, in this Python environment."""
    parts.path.append(str(Path(sys.executable).parent))
    # Programs that were linked elsewhere look for libmpi where it was then.
    parts.libraries = [str(lane.ucx_lib), *parts.libraries, str(Path(sys.prefix, "lib"))]
    nccl = Path(sysconfig.get_path("platlib"), "nvidia", "nccl", "lib")
    parts.libraries += [str(nccl)] if nccl.is_dir() else []
    perftest = lane.ucx_lib.parent / "bin" / "ucx_perftest"
    if perftest.exists():
        parts.programs.setdefault("ucx_perftest", str(perftest))
        parts.features += [] if "ucx" in parts.features else ["ucx"]
    # The wheel of Open MPI is built without CUDA: UCX carries GPU buffers between ranks, but what
    # its collectives copy and add on the way dies of a GPU pointer (osu_allreduce and
    # osu_alltoall of OSU 7.4 on 4 x H200: signal 11).
    parts.features += ["collectives"] if delivery.stack == "host" else []


def environment_of(
    delivery: Delivery,
    lane: str,
    parts: Parts,
    build: dict[str, list[str]],
    extras: dict[str, Any],
) -> dict[str, Any]:
    variables = {}
    if parts.path:
        variables["PATH"] = ":".join([*parts.path, "$PATH"])
    if parts.libraries:
        joined = ":".join(dict.fromkeys(parts.libraries))
        variables["LD_LIBRARY_PATH"] = joined + "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    variables |= parts.variables
    return {
        # ReFrame allows no dot in a name.
        "name": f"{delivery.kind}-{lane}".replace(".", "_"),
        "cc": "mpicc",
        "cxx": extras["compiler"],
        "features": list(
            dict.fromkeys([*stack_features(delivery.stack), *delivery_features(delivery, parts)])
        ),
        "extras": {
            "delivery": delivery.kind,
            "stack": delivery.stack,
            "lane": lane,
            "programs": parts.programs,
            **build,
            **extras,
        },
        "env_vars": [[name, _quoted(value)] for name, value in variables.items()],
    }


def _quoted(value: str) -> str:
    """The value as a job script's ``export`` needs it; variables in it are still expanded."""
    return f'"{value}"' if re.search(r"[\s;&|()<>*?]", value) else value


def delivery_features(delivery: Delivery, parts: Parts) -> list[str]:
    """What was found; of what the site declares only what is no program: ``efa``, ``cxi``."""
    found = set(_PROGRAM_FEATURES) & set(parts.features)
    return [f for f in delivery.features if f not in _PROGRAM_FEATURES or f in found] + [
        f for f in parts.features if f not in delivery.features
    ]


_OURS = ("gpu_aware", "memory")
"""Programs of ours that are compiled where they run; an image brings the first."""
_PROGRAM_FEATURES: Sequence[str] = (
    *("osu", "xccl", "osu-xccl", "ucx", "ofi-tests", "libfabric", "torch"),
)


def stack_features(stack: Stack) -> list[str]:
    """``cray`` is a ROCm stack with another MPI."""
    return ["rocm", "cray"] if stack == "cray" else [stack]


def _oversubscribe(ranks: int) -> dict[str, str]:
    """Only where cores are fewer than ranks: it takes the binding of ranks to cores away."""
    if ranks <= _physical_cores():
        return {}
    return {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def _physical_cores() -> int:
    """Cores that this process may use; two hardware threads of one core count once."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.exists() else str(cpu))
    return len(cores)
