# SPDX-License-Identifier: MIT
"""Find the CUDA toolkit that programs are compiled with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from busbar.errors import BusbarError


def find_cuda() -> tuple[Path, Path]:
    """Return the directories of the headers and of the run-time library.

    The toolkit is that of CUDA_HOME, CUDA_PATH, the ``nvcc`` on PATH or the usual prefixes.

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
            header, library = prefix / "include/cuda_runtime_api.h", prefix / lib / "libcudart.so"
            if header.exists() and library.exists():
                return header.parent, library.parent
    raise BusbarError(
        "no CUDA toolkit found in " + ", ".join(map(str, prefixes)),
        hint="install it, or set CUDA_HOME to its prefix; without NVIDIA GPUs, omit --site",
    )
