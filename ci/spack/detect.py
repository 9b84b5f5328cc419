# SPDX-License-Identifier: MIT
"""Find the externals of a machine by the files that their vendors' packages install."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from busbar.gate.sysfs import text_in
from busbar.preflight.elf import numbers
from busbar.program import call
from busbar.words import grouped

ROCM_SCOPES = Path(__file__).resolve().parents[2] / "site/_families/spack"
KNOWN = yaml.safe_load(Path(__file__).with_name("externals.yaml").read_text())
_PLACES, _ROCM = KNOWN["places"], KNOWN["rocm"]

External = dict[str, Any]
"""A package that the machine has, as an entry of Spack's packages.yaml."""


def external(spec: str, prefix: Path, **more: Any) -> External:
    return {"spec": spec, "prefix": str(prefix), **more}


@dataclass(frozen=True)
class SpackMachine:
    """The files and the environment of a machine."""

    root: Path = Path("/")
    notes: list[str] = field(default_factory=list)

    def found(self, *patterns: str) -> list[Path]:
        """Return what exists, in the order of the patterns; of one pattern the newest first."""
        return [
            path
            for pattern in patterns
            for path in sorted(self.root.glob(pattern), key=_by_version, reverse=True)
        ]

    def on_path(self, program: str) -> Path | None:
        """Return the prefix of a program on PATH."""
        found = shutil.which(program)
        known = found and Path(found).is_relative_to(self.root)
        return Path(found).parents[1] if found and known else None

    def printed(self, *command: str | Path) -> str:
        """Return what a program prints; nothing if it is missing or fails."""
        done = call(command)
        return done.stdout + done.stderr if done.returncode == 0 else ""


def found_externals(machine: SpackMachine, arch: str) -> dict[str, list[External]]:
    """Return the externals of a machine, by package; ``arch`` is the GPU architecture."""
    finders = (cuda, rocm, rdma_core, slurm, openssh, pmix, efa, partial(cray, arch=arch))
    every = chain.from_iterable(finder(machine) for finder in finders)
    return grouped((found["spec"].partition("@")[0], found) for found in every)


def cuda(machine: SpackMachine) -> Iterator[External]:
    """Yield the toolkit of CUDA_HOME, else one of each version that is installed."""
    own = os.environ.get("CUDA_HOME")
    seen = set()
    for place in [Path(own)] if own else machine.found(*_PLACES["cuda"]):
        prefix = Path(os.path.realpath(place))
        version = _cuda_version(machine, prefix)
        if not version:
            machine.notes.append(f"{place} has no version.json or bin/nvcc that names a version")
        if version and version not in seen and (prefix / "bin/nvcc").exists():
            seen.add(version)
            yield external(f"cuda@{version}", prefix)


def _cuda_version(machine: SpackMachine, prefix: Path) -> str:
    try:
        version = str(json.loads((prefix / "version.json").read_text())["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        version = ""
    if re.fullmatch(r"\d+(\.\d+)+", version):
        return version
    return _version_in(machine.printed(prefix / "bin/nvcc", "--version"), before="V")


def rocm(machine: SpackMachine) -> Iterator[External]:
    """Yield all packages of the release in ROCM_PATH, else of the one that is installed."""
    own = os.environ.get("ROCM_PATH")
    for place in (
        [Path(own)] if own else machine.found("opt/rocm/core-*", "opt/rocm", "opt/rocm-*")
    ):
        prefix = Path(os.path.realpath(place))
        version = _version_in(text_in(prefix / ".info/version"))
        if not version:
            machine.notes.append(f"{place} has no version in .info/version")
            continue
        scopes = _ROCM["scopes"]
        like = next((each for each in scopes if numbers(each) <= numbers(version)), scopes[-1])
        text = (ROCM_SCOPES / f"rocm-{like}/packages.yaml").read_text()
        text = text.replace(f"/opt/rocm-{like}", str(prefix)).replace(like, version)
        # ROCm 7.14 and later have the compiler in lib/llvm.
        if prefix.name.startswith("core-"):
            text = text.replace(f"{prefix}/llvm", f"{prefix}/lib/llvm")
        for name, settings in yaml.safe_load(text)["packages"].items():
            (entry,) = settings["externals"]
            needed = Path(entry["prefix"], _ROCM["files"].get(name, ""))
            if not needed.exists():
                machine.notes.append(f"{name}: no {needed}; install its package")
            yield entry
        return


def rdma_core(machine: SpackMachine) -> Iterator[External]:
    """Yield the system's, which is also where DOCA and the EFA installer put theirs."""
    for library in machine.found("usr/lib64/libibverbs.so.1.*", "usr/lib/*/libibverbs.so.1.*"):
        # 1.14.50.0 belongs to release 50.0.
        if not (found := re.search(r"\.so\.1\.\d+\.(?P<release>\d+\.\d+)$", library.name)):
            continue
        prefix = machine.root / "usr"
        headers = ("infiniband/verbs.h", "rdma/rdma_cma.h")
        if missing := [name for name in headers if not (prefix / "include" / name).exists()]:
            machine.notes.append(
                f"{library} has no header {missing[0]}; install rdma-core-devel or, on Debian and"
                " Ubuntu, libibverbs-dev and librdmacm-dev"
            )
            return
        yield external(f"rdma-core@{found['release']} ~pyverbs ~man_pages", prefix)
        return


def slurm(machine: SpackMachine) -> Iterator[External]:
    """Yield the Slurm on PATH, else the one in a usual place."""
    on_path = machine.on_path("scontrol")
    for prefix in [*([on_path] if on_path else []), *machine.found(*_PLACES["slurm"])]:
        version = _version_in(machine.printed(prefix / "bin/scontrol", "--version"))
        if not version:
            continue
        plugin = next(prefix.glob("lib*/**/slurm*/mpi_pmix*.so"), None)
        if plugin is None:
            machine.notes.append(f"Slurm in {prefix} has no plugin mpi_pmix; use mpirun, not srun")
        own = prefix / "etc" if (prefix / "etc/slurm.conf").exists() else Path("/etc/slurm")
        spec = f"slurm@{version.replace('.', '-')}-1 {'+' if plugin else '~'}pmix sysconfdir={own}"
        yield external(spec, prefix)
        return


def openssh(machine: SpackMachine) -> Iterator[External]:
    """Yield the ssh on PATH."""
    prefix = machine.on_path("ssh")
    found = re.search(r"OpenSSH_(?P<version>\w+(\.\w+)*)", machine.printed("ssh", "-V"))
    if prefix and found:
        yield external(f"openssh@{found['version']}", prefix)


def pmix(machine: SpackMachine) -> Iterator[External]:
    """Yield each PMIx with headers."""
    for prefix in machine.found(*_PLACES["pmix"]):
        text = text_in(prefix / "include/pmix_version.h")
        parts = [
            found["number"]
            for part in ("MAJOR", "MINOR", "RELEASE")
            if (found := re.search(rf"PMIX_VERSION_{part}\s+(?P<number>\d+)", text))
        ]
        if len(parts) == 3:
            yield external(f"pmix@{'.'.join(parts)}", prefix)


def efa(machine: SpackMachine) -> Iterator[External]:
    """Yield the libfabric of the EFA installer of AWS."""
    for prefix in machine.found("opt/amazon/efa"):
        text = machine.printed(prefix / "bin/fi_info", "--version")
        if found := re.search(r"libfabric: (?P<version>\d[\w.]*)", text):
            spec = f"libfabric@{found['version']} fabrics=efa,tcp,shm,rxm +cuda +gdrcopy"
            yield external(spec, prefix)


def cray(machine: SpackMachine, arch: str) -> Iterator[External]:
    """Yield MPICH, PMI and libfabric of the loaded modules, else the newest of PrgEnv-gnu."""
    mpich = _of_variable("CRAY_MPICH_DIR") or machine.found(
        "opt/cray/pe/mpich/[0-9]*/ofi/gnu/[0-9]*"
    )
    pmi = _of_variable("CRAY_PMI_PREFIX") or machine.found("opt/cray/pe/pmi/[0-9]*")
    loaded = machine.on_path("fi_info")
    fabric = machine.found("opt/cray/libfabric/[0-9]*")
    if loaded and loaded.parent.name == "libfabric":
        fabric = [loaded]
    if not mpich:
        return
    if not (pmi and fabric):
        machine.notes.append(f"{mpich[0]} has no PMI or libfabric in /opt/cray beside it")
        return
    version = re.search(r"/mpich/(?P<version>[\d.]+)/", str(mpich[0]))
    release = version["version"] if version else os.environ.get("CRAY_MPICH_VERSION", "")
    loaded_arch = re.fullmatch(
        r"(amd_)?(?P<arch>gfx\w+|nvidia\d+)", os.environ.get("CRAY_ACCEL_TARGET", "")
    )
    arch = loaded_arch["arch"] if loaded_arch else arch  # it is `host` without a GPU
    number = arch.removeprefix("nvidia").removeprefix("sm_")
    if not release:
        machine.notes.append(f"{mpich[0]} has no version in its path; load cray-mpich")
        return
    if not arch:
        machine.notes.append(f"{mpich[0]}: load a craype-accel module, or give SITE=, for its GPU")
        return
    nvidia = number.isdigit()
    gtl = mpich[0].parents[2] / f"gtl/lib/libmpi_gtl_{'cuda' if nvidia else 'hsa'}.so"
    if not gtl.exists():
        machine.notes.append(f"{mpich[0]} has no {gtl}; it cannot send from GPU memory")
    gpus = f"~rocm +cuda cuda_arch={number}" if nvidia else f"+rocm ~cuda amdgpu_target={number}"
    module = f"craype-accel-nvidia{number}" if nvidia else f"craype-accel-amd-{number}"
    own = f"^libfabric@{fabric[0].name} ^cray-pmi@{pmi[0].name}"
    spec = f"cray-mpich@{release} +wrappers {gpus} %c=gcc {own}"
    yield external(spec, mpich[0], modules=[module, f"cray-mpich/{release}"])
    yield external(f"cray-pmi@{pmi[0].name}", pmi[0])
    spec = f"libfabric@{fabric[0].name} fabrics=cxi,tcp,shm,rxm,verbs"
    yield external(spec, fabric[0])


def _of_variable(name: str) -> list[Path]:
    value = os.environ.get(name)
    return [Path(value)] if value else []


def _version_in(text: str, before: str = "") -> str:
    """Return the first version number of a text."""
    found = re.search(before + r"(?P<version>\d+(?:\.\d+)+)", text)
    return found["version"] if found else ""


def _by_version(path: Path) -> tuple[tuple[int, ...], str]:
    return numbers(str(path)), str(path)
