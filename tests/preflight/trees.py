# SPDX-License-Identifier: MIT
"""Root file systems of small real libraries, made for the tests of preflight."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

LIB = "usr/lib/x86_64-linux-gnu"


def library(
    path: Path,
    *,
    needed: Sequence[Path] = (),
    defines: str = "",
    uses: str = "",
    text: str = "",
    runpath: str = "",
) -> Path:
    """A shared library at ``path`` with its file name as soname.

    ``defines`` gives its one symbol ``version_<defines>`` a version; ``uses`` makes it need the
    symbol of that version, from a library in ``needed``; ``text`` is a string in its data.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    source = f'const char text_[] __attribute__((used)) = "{text}";\n'
    options = [f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
    if defines:
        symbol = "version_" + defines.replace(".", "_")
        script = path.with_suffix(".map")
        script.write_text(f"{defines} {{ global: {symbol}; local: *; }};\n")
        source += f"int {symbol}(void) {{ return 0; }}\n"
        options.append(f"-Wl,--version-script={script}")
    if uses:
        symbol = "version_" + uses.replace(".", "_")
        source += f"extern int {symbol}(void); int use_(void) {{ return {symbol}(); }}\n"
    if runpath:
        options.append(f"-Wl,-rpath,{runpath}")
    code = path.with_suffix(".c")
    code.write_text(source)
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", *options, "-o", path, code, *needed]
    subprocess.run([str(word) for word in command], check=True)
    code.unlink()
    path.with_suffix(".map").unlink(missing_ok=True)
    return path


def c_library(root: Path, version: str) -> Path:
    """The C library of a root file system, as new as ``version``."""
    return library(root / LIB / "libc.so.6", defines=f"GLIBC_{version}")


def mpi(root: Path, soname: str, needed: Sequence[Path] = ()) -> Path:
    """An MPI in the default directory."""
    return library(root / LIB / soname, needed=needed)


def program(root: Path, needed: Sequence[Path]) -> str:
    """A program that needs these libraries; its path inside."""
    path = root / "usr/bin/app"
    path.parent.mkdir(parents=True, exist_ok=True)
    library(path, needed=needed)
    return "/usr/bin/app"


def fingerprint(root: Path, stack: str) -> None:
    """What one of our images says of itself."""
    file = root / "opt/busbar/fingerprint.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"stack": stack, "delivery": "wheels", "features": [stack]}))


def devices(root: Path, *names: str) -> None:
    """Entries of /dev; plain files, since preflight only looks whether they are there."""
    for name in names:
        file = root / "dev" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def nvidia(root: Path, driver: str) -> None:
    """A host with an NVIDIA driver and one GPU."""
    devices(root, "nvidia0", "nvidiactl", "nvidia-uvm")
    version = root / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Mon Jan 1\n")
    library(root / LIB / "libcuda.so.1")
    library(root / LIB / "libnvidia-ml.so.1")
