# SPDX-License-Identifier: MIT
"""Lines of MPI and its launcher: the program's MPI ABI, and the PMI that its MPI supports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from busbar.mpi import NAMES, SONAMES, pmi_types
from busbar.preflight.loader import ContainerFile, Libraries
from busbar.preflight.model import PreflightAnswer, broken, ready, slow
from busbar.preflight.plan import ImagePlan, hosts_mpirun
from busbar.site.delivery import CRAY_STACKS, MpiFamily

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
        for soname, library in libraries.items():
            if soname in _ABI:
                return cls(soname, library, _pmi_types(plan, soname, library))
        return None


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
    return pmi_types(
        family,
        pmix=any(name.startswith("libpmix.so") for name in needs),
        pmi2="mca_pmix_s2.so" in plan.view.names(library.path.parent / "openmpi"),
    )


def abi(plan: ImagePlan, mpi: ImageMpi | None, libraries: Libraries) -> PreflightAnswer:
    """Check that the MPI that is loaded has the ABI of the program."""
    if mpi is None:
        return _no_mpi(libraries)
    offered = {
        name for mount in plan.injected for name in plan.view.names(mount.target) if name in _ABI
    }
    if offered and mpi.soname not in offered:
        return broken(
            f"the program needs {mpi.soname} ({_ABI[mpi.soname]}), but the host has"
            f" {', '.join(sorted(offered))} ({_ABI[min(offered)]})",
            f"build the program with an MPI of the {_ABI[min(offered)]} ABI",
        )
    if plan.stack in CRAY_STACKS and mpi.soname != "libmpi.so.12":
        return broken(
            f"the program needs {mpi.soname} ({_ABI[mpi.soname]}), but Cray MPICH is libmpi.so.12",
            "build the program with MPICH 3.4 to 4.x",
        )
    if plan.stack in CRAY_STACKS and not offered:
        return slow(
            "Cray MPICH is not on this host; the MPI of the image runs without its tuning",
            "run preflight on a node of the site, or name the directory with --inject",
        )
    if mpi.library is None:
        return broken(f"the loader does not find {mpi.soname}", "")
    side = "host" if mpi.library.origin == "injected" else "image"
    return ready(
        f"{mpi.soname} ({_ABI[mpi.soname]}) is loaded from the {side} ({mpi.library.path})"
    )


def _no_mpi(libraries: Libraries) -> PreflightAnswer:
    if "libmpich.so.12" in libraries:
        return broken(
            "the program needs libmpich.so.12, the MPICH of Debian and Ubuntu; an injected"
            " libmpi.so.12 cannot replace it",
            "build the program with an MPICH from source or from Spack",
        )
    return broken(
        "the program does not load libmpi.so.12 (MPICH) or libmpi.so.40 (Open MPI)",
        "give --program the file that links MPI (for mpi4py, the module MPI.*.so); a static MPI"
        " cannot use the fabric of this site",
    )


def pmi(plan: ImagePlan, mpi: ImageMpi | None) -> tuple[PreflightAnswer, str | None]:
    """Check that launcher and MPI share a PMI; return the line and the ``srun --mpi`` type."""
    if plan.site.scheduler == "local" and plan.injected and plan.runtime == "apptainer":
        return _hosts_launcher(plan), None
    if plan.site.scheduler == "local":
        places = ("/opt/busbar/bin", "/usr/bin", "/usr/local/bin", "/opt/mpich/bin")
        if any("mpirun" in plan.view.names(PurePosixPath(place)) for place in places):
            return ready("no scheduler; mpirun of the image starts the ranks"), None
        return broken(
            "neither the site has a scheduler nor the image an mpirun",
            "install mpirun in the image",
        ), None
    types = plan.host.mpi_types
    if types is None:
        return broken(
            "no srun on this host, so its PMI types are unknown",
            "run preflight on a host with srun",
        ), None
    supported = mpi.pmi_types if mpi else ()
    for mpi_type in supported:
        if mpi_type in types:
            return ready(f"srun --mpi={mpi_type}, which the MPI supports"), mpi_type
    return broken(
        f"the MPI supports {' or '.join(supported) or 'no known PMI'}, srun offers"
        f" {', '.join(types) or 'none'}: each rank would run as its own MPI job, and exit 0",
        "use an MPI with a PMI of srun, or build Slurm with a PMI of the MPI",
    ), None


def _hosts_launcher(plan: ImagePlan) -> PreflightAnswer:
    """Check the host's mpirun, which starts ranks with an injected MPI without a scheduler."""
    if mpirun := hosts_mpirun(plan):
        return ready(f"no scheduler; {mpirun} of the host starts the ranks")
    return broken(
        "the site has no scheduler, and the injected MPI has no mpirun in ../bin or on PATH",
        "put the bin directory of that MPI on PATH",
    )
