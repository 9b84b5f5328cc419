# SPDX-License-Identifier: MIT
"""Find the CUDA toolkit that programs are compiled with."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from busbar.errors import BusbarError


@dataclass(frozen=True)
class Toolkit:
    """The directories of the headers and of the run-time library."""

    include: Path
    lib: Path


def find_cuda() -> Toolkit:
    """Return the toolkit of CUDA_HOME, CUDA_PATH, the ``nvcc`` on PATH or the usual prefixes.

    Raises ``BusbarError`` with every prefix that was searched.
    """
    prefixes = [
        Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ
    ]
    if nvcc := shutil.which("nvcc"):
        prefixes.append(Path(nvcc).resolve().parents[1])
    prefixes += [Path("/usr/local/cuda"), Path("/usr")]
    for prefix in prefixes:
        for lib in ("lib64", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu", "lib"):
            toolkit = Toolkit(prefix / "include", prefix / lib)
            header, library = toolkit.include / "cuda_runtime_api.h", toolkit.lib / "libcudart.so"
            if header.exists() and library.exists():
                return toolkit
    raise BusbarError(
        "no CUDA toolkit found in " + ", ".join(map(str, prefixes)),
        hint="install it, or set CUDA_HOME to its prefix",
    )
