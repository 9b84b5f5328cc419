# SPDX-License-Identifier: MIT
"""Find benchmarks in a prefix or on PATH, their features, CUDA, and what a lock names."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

from busbar.engine.tool import tools
from busbar.errors import BusbarError
from busbar.parse.tables import refused
from busbar.program import call
from busbar.spack import Lock, load

_MPI = ("mpirun", "mpic++")


def in_prefix(prefix: Path) -> dict[str, str]:
    """Return name and path of the programs below an installation prefix or a Spack view.

    Raises ``BusbarError`` if the prefix contains neither a benchmark nor an MPI.
    """
    if not prefix.is_dir():
        raise refused(__file__, "no-prefix", prefix)
    found: dict[str, str] = {}
    for pattern in _in_prefix():
        for path in sorted(prefix.glob(pattern)):
            if path.is_file() and os.access(path, os.X_OK):
                found.setdefault(path.name, str(path.absolute()))
    if not features(found) and not found.keys() >= set(_MPI):
        expected = ", ".join((*_feature_of(), " with ".join(sorted(_MPI))))
        places = ", ".join(dict.fromkeys(str(Path(each).parent) for each in _in_prefix()))
        raise refused(__file__, "empty-prefix", prefix, expected=expected, places=places)
    return found


def _in_prefix() -> list[str]:
    """Return where a prefix has programs, as glob patterns; the usual places come first."""
    usual = [f"{place}/{name}" for place in ("bin", "build") for name in patterns()]
    return usual + [
        f"{place}/{pattern}"
        for tool in tools().values()
        for place in tool.programs.places
        for pattern in tool.programs.patterns
    ]


def patterns() -> list[str]:
    """Return patterns of the program names of all tools and of MPI."""
    return [each for tool in tools().values() for each in tool.programs.patterns] + [*_MPI]


def in_directory(directory: Path) -> dict[str, str]:
    """Return name and path of the programs of tools in a directory."""
    names = [name for tool in tools().values() for name in tool.programs.names]
    return {name: str(directory / name) for name in names if (directory / name).exists()}


def on_path() -> dict[str, str]:
    """Return name and path of the programs that the loaded modules have put on PATH."""
    names = [name for tool in tools().values() for name in tool.programs.names]
    return {name: path for name in (*names, *_MPI) if (path := shutil.which(name))}


def of_the_system() -> dict[str, str]:
    """Return name and path of the programs that come with the drivers of a fabric."""
    found: dict[str, str | None] = {}
    for tool in tools().values():
        if tool.programs.system:
            places = os.pathsep.join([os.environ.get("PATH", ""), tool.programs.system])
            found |= {name: shutil.which(name, path=places) for name in tool.programs.names}
    return {name: path for name, path in found.items() if path}


def _feature_of() -> dict[str, str]:
    of_tools = [tool.features for tool in tools().values()]
    return {each.program: name for one in of_tools for name, each in one.items() if each.program}


def features(programs: dict[str, str]) -> list[str]:
    """Return the features that these programs provide."""
    return [feature for name, feature in _feature_of().items() if name in programs]


def provided() -> list[str]:
    """Return the features that only an installed program provides."""
    return [*_feature_of().values()]


def compiled() -> list[str]:
    """Return the features of our own programs, which are compiled on the machine."""
    of_tools = [tool.features for tool in tools().values()]
    return [name for one in of_tools for name, each in one.items() if each.compiled]


def libraries(prefix: Path) -> list[str]:
    """Return the library directories of a prefix."""
    return [str(path) for name in ("lib", "lib64") if (path := prefix / name).is_dir()]


def python_with_torch() -> str | None:
    """Return a Python with PyTorch: ``BUSBAR_TORCH_PYTHON``, this one or ``python3`` on PATH."""
    script = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    configured = os.environ.get("BUSBAR_TORCH_PYTHON")
    known = filter(None, (configured, sys.executable, shutil.which("python3")))
    return next((each for each in known if not call([each, "-c", script]).returncode), None)


def gpu_aware_collectives(mpirun: str) -> bool:
    """Return whether the Open MPI of ``mpirun`` was built for GPU memory.

    Its collectives need that for GPU buffers: they copy and add without UCX.
    """
    printed = call([Path(mpirun).with_name("ompi_info"), "--parsable", "--all"]).stdout
    return any(
        f"mpi_built_with_{vendor}_support:value:true" in printed for vendor in ("cuda", "rocm")
    )


def find_cuda() -> tuple[Path, Path]:
    """Return the directories of the headers and of the run-time library.

    The toolkit comes from CUDA_HOME, CUDA_PATH, the ``nvcc`` on PATH or the usual prefixes.

    Raises ``BusbarError`` with every prefix that was searched.
    """
    prefixes = [Path(os.environ[n]) for n in ("CUDA_HOME", "CUDA_PATH") if n in os.environ]
    if nvcc := shutil.which("nvcc"):
        prefixes.append(Path(nvcc).resolve().parents[1])
    prefixes += [Path("/usr/local/cuda"), Path("/usr")]
    for prefix in prefixes:
        for lib in ("lib64", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu", "lib"):
            header, library = prefix / "include/cuda_runtime_api.h", prefix / lib / "libcudart.so"
            if header.exists() and library.exists():
                return header.parent, library.parent
    raise refused(__file__, "no-cuda", prefixes=[*map(str, prefixes)])


_HASH_SHOWN = 12


def lock_of(view: Path | None) -> Lock | None:
    """Return the lock of the active Spack environment or of a view; None if there is none."""
    directories = [Path(each) for each in [os.environ.get("SPACK_ENV", "")] if each]
    directories += [view.parents[1]] if view and view.parent.name == ".spack-env" else []
    for directory in directories:
        with suppress(BusbarError):  # a view without its environment has no lock
            return load(directory / "spack.lock")
    return None


def locked_versions(lock: Lock | None) -> dict[str, str]:
    """Return the NCCL that a lock names; nothing if it names several.

    The version of RCCL there is ROCm's, which RCCL's log does not repeat.
    """
    found = {node.version for node in lock.named("nccl")} if lock else set()
    return {"nccl": found.pop().partition("-")[0]} if len(found) == 1 else {}


def packages(lock: Lock | None, *, wheels: bool) -> dict[str, str]:
    """Return what the history keeps of a stack: ``lock.NAME`` and version, ``lock_hash``."""
    found: dict[str, set[str]] = {}
    if lock:
        for node in lock.nodes.values():
            found.setdefault(node.name, set()).add(node.version)
    elif wheels:
        for each in distributions():
            found.setdefault(each.name, set()).add(each.version)
    if not found:
        return {}
    facts = {f"lock.{name}": ", ".join(sorted(found[name])) for name in sorted(found)}
    digest = lock.digest if lock else hashlib.sha256(repr(facts).encode()).hexdigest()
    return {"lock_hash": digest[:_HASH_SHOWN], **facts}
