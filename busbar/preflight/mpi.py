# SPDX-License-Identifier: MIT
"""Lines of MPI and its launcher: the program's MPI ABI, and the PMI that its MPI supports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from busbar.mpi import NAMES, SONAMES, pmi_types
from busbar.preflight import elf
from busbar.preflight.loader import ContainerFile, Libraries
from busbar.preflight.model import PreflightAnswer, answer
from busbar.preflight.plan import ImagePlan, hosts_mpirun
from busbar.site.delivery import CRAY_STACKS, MpiFamily

_UCX = "libucp.so.0"
_UCX_VERSION = re.compile(rb"(?<![\d./-])(?P<version>\d\.\d{1,2}\.\d{1,2})\0")
"""What ``ucp_get_version_string`` returns."""
_ABI = {soname: NAMES[family] for soname, family in SONAMES.items()}


@dataclass(frozen=True)
class ImageMpi:
    """The MPI that the program loads."""

    soname: str
    library: ContainerFile | None
    pmi_types: tuple[str, ...]
    """Types of ``srun --mpi`` that start its ranks as one job, best first."""

    @classmethod
    def of(cls, plan: ImagePlan, libraries: Libraries) -> ImageMpi | None:
        """Return the MPI among ``libraries``; None for a program without MPI."""
        if not (soname := next((name for name in libraries if name in _ABI), "")):
            return None
        return cls(soname, libraries[soname], _pmi_types(plan, soname, libraries[soname]))


def _pmi_types(plan: ImagePlan, soname: str, library: ContainerFile | None) -> tuple[str, ...]:
    if library is None:
        return ()
    needs = plan.view.resolve(library)
    family: MpiFamily = SONAMES[soname]
    if family == "mpich" and (
        any("cray" in str(f.path) for f in (library, *needs.values()) if f)
        or any(mount.source.parts[:3] == ("/", "opt", "cray") for mount in plan.injected)
    ):
        family = "cray-mpich"
    pmi2 = "mca_pmix_s2.so" in plan.view.names(library.path.parent / "openmpi")
    return pmi_types(family, pmix=any(name.startswith("libpmix.so") for name in needs), pmi2=pmi2)


def abi(plan: ImagePlan, mpi: ImageMpi | None, libraries: Libraries) -> PreflightAnswer:
    """Check that the MPI that is loaded has the ABI of the program."""
    if mpi is None:
        return answer("mpich-of-debian" if "libmpich.so.12" in libraries else "no-mpi")
    needs = {"soname": mpi.soname, "abi": _ABI[mpi.soname]}
    offered = {
        name for mount in plan.injected for name in plan.view.names(mount.target) if name in _ABI
    }
    if offered and mpi.soname not in offered:
        names, other = ", ".join(sorted(offered)), _ABI[min(offered)]
        return answer("other-abi-on-host", offered=names, other=other, **needs)
    if plan.stack in CRAY_STACKS and mpi.soname != "libmpi.so.12":
        return answer("other-abi-than-cray", **needs)
    if plan.stack in CRAY_STACKS and not offered:
        return answer("no-cray-mpich")
    if mpi.library is None:
        return answer("no-mpi-library", **needs)
    side = "host" if mpi.library.origin == "injected" else "image"
    return answer("mpi", side=side, library=mpi.library, **needs)


def ucx(
    plan: ImagePlan, mpi: ImageMpi | None, libraries: Libraries
) -> Iterator[tuple[str, PreflightAnswer]]:
    """Say if the UCX that is loaded is older than MPI's, or completes gets too early."""
    loaded = libraries.get(_UCX)
    if not (loaded and mpi and mpi.library):
        return
    linked = plan.view.linked(mpi.library, _UCX)
    built, found = _version(linked) if linked else "", _version(loaded)
    if built and found and elf.numbers(built)[:2] > elf.numbers(found)[:2]:
        yield "mpi-ucx", answer("older-ucx", built=built, library=loaded, found=found)
    early = found and SONAMES[mpi.soname] == "openmpi" and elf.numbers(found)[:2] < (1, 16)
    if early and "ucx" in plan.environment.get("OMPI_MCA_osc", "ucx").split(","):
        yield "mpi-get", answer("early-gets", library=loaded, found=found)


def _version(library: ContainerFile) -> str:
    found = elf.search(library, _UCX_VERSION)
    return found["version"].decode() if found else ""


def pmi(plan: ImagePlan, mpi: ImageMpi | None) -> tuple[PreflightAnswer, str | None]:
    """Check that launcher and MPI share a PMI; return the line and the ``srun --mpi`` type."""
    if plan.site.scheduler == "local" and plan.injected and plan.runtime == "apptainer":
        mpirun = hosts_mpirun(plan)
        return answer("mpirun-of-host" if mpirun else "no-mpirun-of-host", mpirun=mpirun), None
    if plan.site.scheduler == "local":
        places = ("/opt/busbar/bin", "/usr/bin", "/usr/local/bin", "/opt/mpich/bin")
        found = any("mpirun" in plan.view.names(PurePosixPath(place)) for place in places)
        return answer("mpirun-of-image" if found else "no-mpirun-of-image"), None
    types = plan.host.mpi_types
    if types is None:
        return answer("no-srun"), None
    supported = mpi.pmi_types if mpi else ()
    if common := [each for each in supported if each in types]:
        return answer("pmi", mpi_type=common[0]), common[0]
    facts = {"supported": " or ".join(supported) or "no known PMI"}
    return answer("no-common-pmi", offered=", ".join(types) or "none", **facts), None
