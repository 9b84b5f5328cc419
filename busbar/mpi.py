# SPDX-License-Identifier: MIT
"""The MPI of a delivery: of which family it is, what must be set for it, how its ranks start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from busbar.errors import BusbarError
from busbar.site.model import MpiFamily, Site, Stack

NAMES: dict[MpiFamily, str] = {
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "cray-mpich": "Cray MPICH",
}
SONAMES: dict[str, MpiFamily] = {"libmpi.so.12": "mpich", "libmpi.so.40": "openmpi"}
"""Whose ABI a library has; Cray MPICH has that of MPICH."""
SHARED_MEMORY = ("sysv", "posix", "cma", "knem", "xpmem")
"""UCX transports (``ucx_info -d``) that join two processes of a node."""
_GPU = {"cuda": ("cuda_ipc",), "rocm": ("rocm_ipc",), "cray": ("rocm_ipc",)}
_VERBS = ("rc_mlx5", "dc_mlx5", "rc_verbs", "ud_mlx5", "ud_verbs")
_NETWORK = {"verbs": _VERBS, "efa": ("srd", "ud_verbs")}

_TIMEOUT_S = 30
# What one family's run time reads and another's must not find in a job.
_OWN_VARIABLES = {
    "openmpi": ("OMPI_", "PRTE_", "PMIX_"),
    "mpich": ("MPICH_", "MPIR_", "HYDRA_"),
    "cray-mpich": ("MPICH_", "MPIR_", "PMI_", "PALS_"),
}


@dataclass(frozen=True)
class MpiInstall:
    """The MPI that compiles and starts our programs in one environment."""

    family: MpiFamily
    directory: Path | None = None
    """Where its ``mpirun`` is; None for the one on PATH, or where none is."""
    own: bool = True
    """It came with the stack; else it is the wheel in this Python environment."""

    @property
    def compiler(self) -> str:
        """The C++ compiler; Cray's wrapper links MPI by itself."""
        return "CC" if self.family == "cray-mpich" else "mpic++"

    def without_compiler(self, path: Sequence[str]) -> str:
        """Why nothing can be compiled for it; empty where its compiler is here.

        That must stand beside ``mpirun``: one further along the PATH is another MPI's. ``path`` is
        searched where there is no ``mpirun``, as on Cray.
        """
        if self.directory:
            beside = self.directory / self.compiler
            return "" if os.access(beside, os.X_OK) else f"{beside} is missing"
        return (
            ""
            if shutil.which(self.compiler, path=os.pathsep.join(path))
            else (f"no {self.compiler} is on PATH")
        )

    def takes(self, variable: str) -> bool:
        """Whether a variable may be set where this MPI runs."""
        foreign = {p for prefixes in _OWN_VARIABLES.values() for p in prefixes}
        foreign -= set(_OWN_VARIABLES[self.family])
        return not variable.startswith(tuple(foreign))

    @property
    def over_ucx(self) -> bool:
        """Whether UCX carries the messages, whose log then says how."""
        if self.family == "openmpi":
            return True
        if self.family == "cray-mpich":
            return False  # on Slingshot there is libfabric alone
        chosen = os.environ.get("MPIR_CVAR_CH4_NETMOD")
        return (chosen or self._netmod()) == "ucx"

    def _netmod(self) -> str:
        """The network module that MPICH takes by itself: the first that it was built with."""
        said = _said([self._program("mpichversion")])
        found = re.search(r"^MPICH Device:\s*ch4:(?P<module>\w+)", said, re.MULTILINE)
        return found["module"] if found else ""

    def _program(self, name: str) -> str:
        return str(self.directory / name) if self.directory else name

    def variables(self, *, slurm: bool) -> dict[str, str]:
        """What it needs on any machine; more for the wheel than for one of the ``own`` stack.

        The wheel takes UCX only for devices of its own list, none of which a machine without
        InfiniBand has (``ompi_info --param opal_common ucx``): both lists are widened. UCX names
        the transports that it took at log level info; that goes to standard error, away from the
        program's own lines.
        """
        found = {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": "stderr"} if self.over_ucx else {}
        if self.family == "mpich":
            return {**found, "MPIR_CVAR_DEBUG_SUMMARY": "1"}  # names the libfabric provider
        if self.family != "openmpi":
            return found
        found = {"OMPI_MCA_pml": "ucx", **found}
        if not self.own:
            found |= {
                "OMPI_MCA_opal_common_ucx_tls": "any",
                "OMPI_MCA_opal_common_ucx_devices": "any",
            }
            # Slurm asks for munge, of which the wheel's PMIx knows nothing.
            found |= {"PMIX_MCA_psec": "native"} if slurm else {}
        if os.geteuid() == 0:
            found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return found

    def transports(self, stack: Stack) -> tuple[str, ...]:
        """UCX transports of which one must join two ranks of a node; none where UCX does not.

        MPICH opens UCX's endpoints within a node but has shared memory of its own: its readings
        stay the same with UCX_TLS=tcp. There the band alone says that no network was used.
        """
        return _GPU.get(stack, SHARED_MEMORY) if self.family == "openmpi" else ()

    def across(self, stack: Stack, site: Site) -> tuple[str, ...]:
        """UCX transports of which one must be in every connection of ranks on several nodes."""
        within = (*SHARED_MEMORY, *_GPU.get(stack, ()))
        return (*within, *network_transports(site)) if self.over_ucx else ()

    def provider(self, site: Site) -> str:
        """The libfabric provider that must join the nodes, where MPICH says which it took."""
        asked = self.family == "mpich" and not self.over_ucx and site.fabric
        return site.fabric.provider if asked and site.fabric else ""

    def speaks(self) -> tuple[str, ...]:
        """Types of ``srun --mpi`` that make one job of its ranks, best first."""
        linked = False
        if self.family == "mpich" and self.directory:
            library = self.directory.parent / "lib" / "libmpi.so.12"
            linked = "libpmix" in _said(["ldd", str(library)])
        return pmi_types(self.family, pmix=linked)

    def srun_options(self, site: Site, offered: Sequence[str] | None) -> list[str]:
        """How srun must be told to start the ranks; ``offered`` None: as the site would have it.

        Raises ``BusbarError`` where Slurm offers nothing that this MPI speaks: each rank would
        take itself for the whole job.
        """
        speaks = self.speaks()
        if offered is None:
            return [f"--mpi={speaks[0]}"]
        for wanted in speaks:
            if wanted in offered:
                return [f"--mpi={wanted}"]
        raise BusbarError(
            f"{NAMES[self.family]} speaks {' or '.join(speaks)}, srun offers"
            f" {', '.join(offered) or 'nothing'}: every rank would be alone",
            where=f"site {site.name}, srun --mpi=list",
            hint="install Slurm's plugin for it, or use an MPI that speaks what there is",
        )


def network_transports(site: Site) -> tuple[str, ...]:
    """UCX transports of which one must carry data between nodes."""
    provider = site.fabric.provider if site.fabric else ""
    return _NETWORK.get(provider, ("tcp",))


def family_of(directory: Path) -> MpiFamily | None:
    """Whose ``mpirun`` is in a directory, by its own word; None where it is nobody's we know."""
    said = _said([str(directory / "mpirun"), "--version"])
    if "Open MPI" in said or "open-mpi" in said:
        return "openmpi"
    return "mpich" if "HYDRA" in said else None


def pmi_types(family: MpiFamily, *, pmix: bool = False, pmi2: bool = False) -> tuple[str, ...]:
    """Types of ``srun --mpi`` that make one job of its ranks, best first.

    ``pmix``: it is linked with libpmix. ``pmi2``: it has a plugin for PMI2. Open MPI 5 knows PMIx
    alone; 4 has PMI2 where it was built with it.
    """
    if family == "openmpi":
        return ("pmix", "pmi2") if pmi2 else ("pmix",)
    if family == "cray-mpich":
        return ("cray_shasta", "pmi2")
    return ("pmix",) if pmix else ("pmi2",)


def srun_types() -> tuple[str, ...] | None:
    """What ``srun --mpi=list`` offers; None where there is no srun."""
    if not shutil.which("srun"):
        return None
    try:
        done = subprocess.run(
            ["srun", "--mpi=list"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BusbarError(
            f"srun --mpi=list does not answer within {_TIMEOUT_S} s",
            where="this host",
            hint="does `srun --mpi=list` end by itself? run this where it does",
        ) from error
    # One name a line in Slurm 22 and 23, after "srun: " in others; then "specific ...: pmix_v4".
    text = re.sub(r"(?m)^srun: ", "", done.stdout + done.stderr)
    return tuple(re.findall(r"\b(?:pmix(?:_v\d+)?|pmi2|cray_shasta|openmpi)\b", text))


def _said(command: list[str]) -> str:
    """All that a command prints; nothing where it cannot be started."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
