# SPDX-License-Identifier: MIT
"""MPI and its launcher: the ABI that the program was built for, the PMI that its MPI speaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from busbar.mpi import NAMES, SONAMES, pmi_types
from busbar.preflight.loader import Found
from busbar.preflight.model import Line, Status, ready
from busbar.preflight.plan import ImagePlan, hosts_mpirun
from busbar.site.model import MpiFamily

_ABI = {soname: NAMES[family] for soname, family in SONAMES.items()}


@dataclass(frozen=True)
class ImageMpi:
    """The MPI that the program gets."""

    soname: str
    found: Found | None
    speaks: tuple[str, ...]
    """Types of ``srun --mpi`` that start its ranks as one job, best first."""

    @classmethod
    def of(cls, plan: ImagePlan, libraries: dict[str, Found | None]) -> ImageMpi | None:
        """The MPI among ``libraries``; None for a program without."""
        for soname, found in libraries.items():
            if soname in _ABI:
                return cls(soname, found, _speaks(plan, soname, found))
        return None


def _speaks(plan: ImagePlan, soname: str, found: Found | None) -> tuple[str, ...]:
    if found is None:
        return ()
    needs = plan.view.resolve(found)
    family: MpiFamily = SONAMES[soname]
    if family == "mpich" and (
        any("cray" in str(f.path) for f in (found, *needs.values()) if f)
        or any(mount.source.parts[:3] == ("/", "opt", "cray") for mount in plan.injected)
    ):
        family = "cray-mpich"
    return pmi_types(
        family,
        pmix=any(name.startswith("libpmix.so") for name in needs),
        pmi2="mca_pmix_s2.so" in plan.view.names(found.path.parent / "openmpi"),
    )


def abi(plan: ImagePlan, mpi: ImageMpi | None, libraries: dict[str, Found | None]) -> Line:
    """Whether the MPI that is loaded has the ABI of the program, and which one it is."""
    if mpi is None:
        return _no_mpi(libraries)
    offered = {
        name for mount in plan.injected for name in plan.view.names(mount.target) if name in _ABI
    }
    if offered and mpi.soname not in offered:
        return Line(
            "mpi-abi",
            Status.BROKEN,
            f"the program needs {mpi.soname} ({_ABI[mpi.soname]}), the host offers"
            f" {', '.join(sorted(offered))} ({_ABI[min(offered)]})",
            f"build the program with an MPI of the {_ABI[min(offered)]} ABI",
        )
    if plan.stack == "cray" and mpi.soname != "libmpi.so.12":
        return Line(
            "mpi-abi",
            Status.BROKEN,
            f"the program needs {mpi.soname} ({_ABI[mpi.soname]}); Cray MPICH is libmpi.so.12",
            "build the program with MPICH 3.4 to 4.x",
        )
    if plan.stack == "cray" and not offered:
        return Line(
            "mpi-abi",
            Status.SLOW,
            "Cray MPICH is not on this host, so the image's own MPI runs, without its tuning",
            "run preflight on a node of the site, or name the directory with --inject",
        )
    if mpi.found is None:
        return Line("mpi-abi", Status.BROKEN, f"the loader finds no {mpi.soname}", "")
    return ready(
        "mpi-abi", f"{mpi.soname} ({_ABI[mpi.soname]}), the loader takes that of the"
        f" {'host' if mpi.found.origin == 'injected' else 'image'} ({mpi.found.path})"
    )  # fmt: skip


def _no_mpi(libraries: dict[str, Found | None]) -> Line:
    if "libmpich.so.12" in libraries:
        return Line(
            "mpi-abi",
            Status.BROKEN,
            "the program needs libmpich.so.12, which is what Debian and Ubuntu call MPICH: no MPI"
            " that is injected as libmpi.so.12 takes its place",
            "build the program with an MPICH from its own source or from Spack",
        )
    return Line(
        "mpi-abi",
        Status.BROKEN,
        "no libmpi.so.12 (MPICH) or libmpi.so.40 (Open MPI) is needed or found",
        "name with --program what is linked with MPI (of mpi4py the module MPI.*.so); a static MPI"
        " cannot take the fabric of this site",
    )


def pmi(plan: ImagePlan, mpi: ImageMpi | None) -> tuple[Line, str | None]:
    """Whether launcher and MPI speak the same, and the value of ``srun --mpi``."""
    if plan.site.scheduler == "local" and plan.injected and plan.runtime == "apptainer":
        return _hosts_launcher(plan), None
    if plan.site.scheduler == "local":
        places = ("/opt/busbar/bin", "/usr/bin", "/usr/local/bin", "/opt/mpich/bin")
        if any("mpirun" in plan.view.names(PurePosixPath(place)) for place in places):
            return ready("pmi", "no scheduler: mpirun of the image starts the ranks"), None
        return Line(
            "pmi",
            Status.BROKEN,
            "the site has no scheduler and the image no mpirun",
            "install one in the image",
        ), None
    types = plan.host.mpi_types
    if types is None:
        return Line(
            "pmi",
            Status.BROKEN,
            "there is no srun here, so nothing is known of its PMI",
            "run preflight where srun is",
        ), None
    speaks = mpi.speaks if mpi else ()
    for wanted in speaks:
        if wanted in types:
            return ready("pmi", f"srun --mpi={wanted}; the MPI speaks it"), wanted
    return Line(
        "pmi",
        Status.BROKEN,
        f"the MPI speaks {' or '.join(speaks) or 'nothing known'}, srun offers"
        f" {', '.join(types) or 'nothing'}: every rank would run alone, and exit 0",
        "use an MPI that speaks one of them, or have Slurm built with what it speaks",
    ), None


def _hosts_launcher(plan: ImagePlan) -> Line:
    """Without a scheduler, ranks that load the host's MPI are started by the host's mpirun."""
    if found := hosts_mpirun(plan):
        return ready("pmi", f"no scheduler: {found} of the host starts the ranks")
    return Line(
        "pmi",
        Status.BROKEN,
        "the site has no scheduler, and the MPI that is injected has no mpirun in ../bin or PATH",
        "put the bin directory of that MPI on PATH",
    )
