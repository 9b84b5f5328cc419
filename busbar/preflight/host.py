# SPDX-License-Identifier: MIT
"""Facts of a compute node that a container depends on: C library, launcher, driver, devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from busbar.preflight import elf
from busbar.preflight.files import TABLES, Directory, Files, refused
from busbar.preflight.loader import View
from busbar.site.model import Site
from busbar.slurm.steps import mpi_types


@dataclass(frozen=True)
class Host:
    """The node that preflight runs on, or one whose files are under another root."""

    files: Files
    view: View
    mpi_types: tuple[str, ...] | None
    """From ``srun --mpi=list``; None without srun."""
    nvidia_driver: tuple[int, ...] | None
    rocm: tuple[int, ...] | None
    """Release of the ROCm that is installed with the driver."""
    rdma_drivers: tuple[str, ...]
    """rdma-core libraries that the node's devices need, such as ``mlx5``; empty if unknown."""
    devices: tuple[str, ...]
    """Entries of /dev, /dev/infiniband and /dev/dri, relative to /dev."""


def gather(root: Path, site: Site) -> Host:
    """Read the facts of the host whose file system is at ``root``."""
    if not root.is_dir():
        raise refused("no-host-root", f"--host-root {root}")
    files = Directory(root)
    view = View.of(files)
    return Host(
        files=files,
        view=view,
        mpi_types=mpi_types() if site.scheduler != "local" else None,
        nvidia_driver=_nvidia_driver(view),
        rocm=rocm_release(view),
        rdma_drivers=_rdma_drivers(view),
        devices=tuple(
            f"{directory}{name}"
            for directory in ("", "infiniband/", "dri/")
            for name in view.names(PurePosixPath("/dev", directory))
        ),
    )


def _nvidia_driver(view: View) -> tuple[int, ...] | None:
    """Read the version of the kernel module; /proc/driver is missing on some virtual machines."""
    # "NVIDIA UNIX x86_64 Kernel Module  570.86.15", "... Open Kernel Module for x86_64  570.86.15"
    text = view.text(PurePosixPath("/proc/driver/nvidia/version"))
    module = re.search(r"Module(?: for \S+)?\s+(?P<version>\d+(?:\.\d+)+)", text)
    version = (
        module["version"] if module else view.text(PurePosixPath("/sys/module/nvidia/version"))
    )
    return elf.numbers(version) or None


def _rdma_drivers(view: View) -> tuple[str, ...]:
    """Derive the libraries from the kernel modules of the devices (mlx5_core, efa, bnxt_en)."""
    devices = PurePosixPath("/sys/class/infiniband")
    drivers = [view.resolved(devices / name / "device/driver") for name in view.names(devices)]
    modules = {driver.name.partition("_")[0] for driver in drivers if driver}
    return tuple(sorted(TABLES["rdma-core"].get(m, m) for m in modules - {"driver"}))


def rocm_release(view: View) -> tuple[int, ...] | None:
    """Return the release of the newest /opt/rocm* and /opt/rocm/core-*; None if there is none."""
    releases = []
    for above, prefix in (("/opt", "rocm"), ("/opt/rocm", "core-")):
        for name in view.names(PurePosixPath(above)):
            version = PurePosixPath(above, name, ".info", "version")
            if name.startswith(prefix) and view.kind(version) == "file":
                releases.append(elf.numbers(view.text(version).strip().partition("-")[0]))
    return max(releases, default=None) or None


def c_library(view: View) -> elf.Elf | None:
    """Read the C library of a file system; None if there is none that can be read."""
    library = view.search("libc.so.6")
    return elf.read(library) if library else None
