# SPDX-License-Identifier: MIT
"""What a compute node offers a container: its C library, launcher, driver and devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from busbar.errors import BusbarError
from busbar.mpi import srun_types
from busbar.preflight import elf
from busbar.preflight.files import Directory, Files
from busbar.preflight.loader import View
from busbar.site.model import Site

# rdma-core's library where it is not called as the kernel module of the device.
_RDMA_CORE = {"bnxt": "bnxt_re", "hfi1": "hfi1verbs", "ice": "irdma", "i40e": "irdma"}


@dataclass(frozen=True)
class Host:
    """The node that preflight runs on, or one whose files are under another root."""

    files: Files
    view: View
    mpi_types: tuple[str, ...] | None
    """Of ``srun --mpi=list``; None where there is no srun."""
    nvidia_driver: tuple[int, ...] | None
    rocm: tuple[int, ...] | None
    """Release of the ROCm that is installed beside the driver."""
    rdma_drivers: tuple[str, ...]
    """Libraries of rdma-core that the node's devices need, such as ``mlx5``; empty for unknown."""
    devices: tuple[str, ...]
    """Entries of /dev and its /dev/infiniband, /dev/dri."""


def gather(root: Path, site: Site) -> Host:
    """The facts of the host whose file system is at ``root``."""
    if not root.is_dir():
        raise BusbarError("there is no such directory", where=f"--host-root {root}")
    files = Directory(root)
    view = View(files, files, (), ())
    return Host(
        files=files,
        view=view,
        mpi_types=srun_types() if site.scheduler != "local" else None,
        nvidia_driver=_nvidia_driver(root),
        rocm=rocm_release(files),
        rdma_drivers=_rdma_drivers(root),
        devices=tuple(
            f"{prefix}{path.name}"
            for directory, prefix in (("", ""), ("infiniband", "infiniband/"), ("dri", "dri/"))
            for path in sorted((root / "dev" / directory).glob("*"))
        ),
    )


def _nvidia_driver(root: Path) -> tuple[int, ...] | None:
    """As its kernel module says; a virtual machine need not have its directory in /proc."""
    # "NVIDIA UNIX x86_64 Kernel Module  570.86.15", "... Open Kernel Module for x86_64  570.86.15"
    text = _text(root / "proc/driver/nvidia/version")
    said = re.search(r"Module(?: for \S+)?\s+(?P<version>\d+(?:\.\d+)+)", text)
    version = said["version"] if said else _text(root / "sys/module/nvidia/version").strip()
    return _numbers(version) or None


def _rdma_drivers(root: Path) -> tuple[str, ...]:
    """By the kernel modules of the devices: mlx5_core, efa, bnxt_en and so on."""
    modules = {
        link.resolve().name.partition("_")[0]
        for link in (root / "sys/class/infiniband").glob("*/device/driver")
    }
    return tuple(sorted(_RDMA_CORE.get(m, m) for m in modules))


def rocm_release(files: Files) -> tuple[int, ...] | None:
    """The release of the newest /opt/rocm* there is; None where there is none."""
    found = []
    for name in files.names(PurePosixPath("/opt")):
        version = PurePosixPath("/opt", name, ".info", "version")
        if name.startswith("rocm") and files.kind(version) == "file":
            said = _text(files.local(version)).strip().partition("-")[0]
            found.append(_numbers(said))
    return max(found, default=None) or None


def glibc(view: View) -> tuple[int, ...]:
    """The version of the C library of a file system, which its newest symbols carry."""
    library = view.search("libc.so.6")
    facts = elf.read(library.local) if library else None
    return elf.highest(facts.defines, "GLIBC") if facts else ()


def machine(view: View) -> str:
    """The processor that the C library of a file system is for; empty where none is read."""
    library = view.search("libc.so.6")
    facts = elf.read(library.local) if library else None
    return facts.machine if facts else ""


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))
