# SPDX-License-Identifier: MIT
"""Find the benchmarks in a prefix or on PATH, and the features that they provide."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from busbar.errors import BusbarError

_OSU = "libexec/osu-micro-benchmarks"
_PLACES = (
    *("bin", "build", f"{_OSU}/mpi", f"{_OSU}/xccl"),
    *("libexec/nccl-tests", "libexec/rccl-tests"),
)
PATTERNS = (
    *("osu_*", "*_perf", "ucx_perftest", "nccl_message_transfer"),
    *("fi_pingpong", "fi_rma_bw", "mpirun", "mpic++"),
)
_ON_PATH = (
    *("osu_bw", "osu_bibw", "osu_latency", "osu_mbw_mr"),
    *("osu_allreduce", "osu_allgather", "osu_alltoall", "osu_bcast", "osu_reduce_scatter"),
    *("osu_xccl_allreduce", "osu_xccl_allgather", "osu_xccl_alltoall", "osu_xccl_bcast"),
    *("osu_xccl_reduce_scatter", "osu_xccl_bw"),
    *("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf"),
    *("alltoall_perf", "broadcast_perf", "sendrecv_perf"),
    *("ucx_perftest", "nccl_message_transfer", "mpirun", "mpic++"),
)
_LIBFABRIC = ("fi_pingpong", "fi_rma_bw")
_MPI = {"mpirun", "mpic++"}
_FEATURE_OF = {
    "osu_bw": "osu",
    "osu_xccl_allreduce": "osu-xccl",
    "all_reduce_perf": "xccl",
    "ucx_perftest": "ucx",
    "nccl_message_transfer": "ofi-tests",
    "fi_pingpong": "libfabric",
}


def in_prefix(prefix: Path) -> dict[str, str]:
    """Return name and path of the programs below an installation prefix or a Spack view.

    Raises ``BusbarError`` if the prefix contains neither a benchmark nor an MPI.
    """
    if not prefix.is_dir():
        raise BusbarError(
            "no such directory", where=str(prefix), hint="give the directory of --prefix"
        )
    programs: dict[str, str] = {}
    for place in _PLACES:
        for pattern in PATTERNS:
            deep = place.startswith(_OSU)
            hits = (prefix / place).rglob(pattern) if deep else (prefix / place).glob(pattern)
            for path in sorted(hits):
                if path.is_file() and os.access(path, os.X_OK):
                    programs.setdefault(path.name, str(path.absolute()))
    if not features(programs) and not programs.keys() >= _MPI:
        expected = ", ".join((*_FEATURE_OF, " with ".join(sorted(_MPI))))
        raise BusbarError(
            f"contains no benchmark and no MPI: none of {expected} is in {', '.join(_PLACES)}",
            where=str(prefix),
            hint="give the prefix that osu-micro-benchmarks, nccl-tests or an MPI is installed in",
        )
    return programs


def on_path() -> dict[str, str]:
    """Return name and path of the programs that the loaded modules have put on PATH."""
    return {name: path for name in _ON_PATH if (path := shutil.which(name))}


def of_the_system() -> dict[str, str]:
    """Return name and path of the tests of libfabric, which come with the drivers of a fabric."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/opt/amazon/efa/bin"])
    return {name: path for name in _LIBFABRIC if (path := shutil.which(name, path=places))}


def features(programs: dict[str, str]) -> list[str]:
    """Return the features that these programs provide."""
    return [feature for name, feature in _FEATURE_OF.items() if name in programs]


def libraries(prefix: Path) -> list[str]:
    """Return the library directories of a prefix."""
    return [str(path) for name in ("lib", "lib64") if (path := prefix / name).is_dir()]


def python_with_torch() -> str | None:
    """Return a Python with PyTorch: ``BUSBAR_TORCH_PYTHON``, this one or ``python3`` on PATH."""
    script = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    configured = os.environ.get("BUSBAR_TORCH_PYTHON")
    for python in (configured, sys.executable, shutil.which("python3")):
        if python and not subprocess.run([python, "-c", script], check=False).returncode:
            return python
    return None


def gpu_aware_collectives(mpirun: str) -> bool:
    """Return whether the Open MPI of ``mpirun`` was built for GPU memory.

    Its collectives need that for GPU buffers: they copy and add without UCX.
    """
    ompi_info = Path(mpirun).with_name("ompi_info")
    if not ompi_info.exists():
        return False
    done = subprocess.run(
        [ompi_info, "--parsable", "--all"], capture_output=True, text=True, check=False
    )
    return any(
        f"mpi_built_with_{vendor}_support:value:true" in done.stdout for vendor in ("cuda", "rocm")
    )
