# SPDX-License-Identifier: MIT
"""Finds the CUDA toolkit that programs are compiled with."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from busbar.errors import BusbarError


@dataclass(frozen=True)
class Toolkit:
    """Where the headers and the run-time library are."""

    include: Path
    lib: Path


def find_cuda() -> Toolkit:
    """The toolkit of CUDA_HOME, of CUDA_PATH, of the ``nvcc`` on PATH, or of the usual prefixes.

    Raises :class:`BusbarError` naming every place that was looked at.
    """
    prefixes = [
        Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ
    ]
    if nvcc := shutil.which("nvcc"):
        prefixes.append(Path(nvcc).resolve().parents[1])
    prefixes += [Path("/usr/local/cuda"), Path("/usr")]
    for prefix in prefixes:
        for lib in ("lib64", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu", "lib"):
            found = Toolkit(prefix / "include", prefix / lib)
            if (found.include / "cuda_runtime_api.h").exists() and (
                found.lib / "libcudart.so"
            ).exists():
                return found
    raise BusbarError(
        "no CUDA toolkit found in " + ", ".join(map(str, prefixes)),
        hint="install it, or set CUDA_HOME to its prefix",
    )
