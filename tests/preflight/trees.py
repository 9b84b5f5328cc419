# SPDX-License-Identifier: MIT
"""Root file systems of small real libraries, made for the tests of preflight."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..files import written

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

    ``defines`` gives a symbol ``version_<version>`` to each version in it; ``uses`` makes it need
    the symbol of that version, from a library in ``needed``; ``text`` is a string in its data.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    code = _source(defines, uses, text)
    path.unlink(missing_ok=True)  # what is already copied from it stays as it was
    path.write_bytes(
        _compiled(path.name, tuple(n.read_bytes() for n in needed), defines, code, runpath)
    )
    return path


def _source(defines: str, uses: str, text: str) -> str:
    code = f'const char text_[] __attribute__((used)) = "{text}";\n'
    for version in defines.split():
        code += f"int {_symbol(version)}(void) {{ return 0; }}\n"
    if uses:
        code += (
            f"extern int {_symbol(uses)}(void); int use_(void) {{ return {_symbol(uses)}(); }}\n"
        )
    return code


def _symbol(version: str) -> str:
    return "version_" + version.replace(".", "_")


@cache
def _compiled(
    soname: str, needed: tuple[bytes, ...], defines: str, code: str, runpath: str
) -> bytes:
    """The library; tests build many that are alike."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        options = [f"-Wl,-soname,{soname}", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
        if defines:
            first, *later = defines.split()
            script = f"{first} {{ global: {_symbol(first)}; local: *; }};\n"
            script += "".join(f"{v} {{ global: {_symbol(v)}; }};\n" for v in later)
            (work / "versions").write_text(script)
            options.append(f"-Wl,--version-script={work / 'versions'}")
        if runpath:
            options.append(f"-Wl,-rpath,{runpath}")
        (work / "code.c").write_text(code)
        others = [work / f"needed{n}.so" for n in range(len(needed))]
        for other, data in zip(others, needed, strict=True):
            other.write_bytes(data)
        command = ["gcc", "-shared", "-fPIC", "-nostdlib", *options, "-o", work / "out"]
        command += [work / "code.c", *others]
        subprocess.run([str(word) for word in command], check=True)
        return (work / "out").read_bytes()


def c_library(root: Path, version: str) -> Path:
    """The C library of a root file system, as new as ``version``; older ones are in it too."""
    versions = [f"GLIBC_2.{n}" for n in range(17, int(version.partition(".")[2]) + 1)]
    return library(root / LIB / "libc.so.6", defines=" ".join(versions))


def program(root: Path, needed: Sequence[Path]) -> None:
    """The program of an image, which needs these libraries."""
    library(root / "usr/bin/app", needed=needed)


def fingerprint(root: Path, stack: str) -> None:
    """What one of our images says of itself."""
    says = {"stack": stack, "delivery": "wheels", "features": [stack]}
    written(root / "opt/busbar/fingerprint.json", json.dumps(says))


def variables(root: Path, **values: str) -> None:
    """What the image sets, as Apptainer keeps it of an OCI image."""
    lines = [f'export {name}="${{{name}:-"{value}"}}"\n' for name, value in values.items()]
    script = "#!/bin/sh\n" + "".join(lines)
    written(root / ".singularity.d/env/10-docker2singularity.sh", script)


def rdma(root: Path, module: str) -> None:
    """An RDMA device of a host, by the kernel module that drives it."""
    device = root / "sys/class/infiniband/device0/device"
    device.mkdir(parents=True)
    (root / "sys/drivers" / module).mkdir(parents=True)
    (device / "driver").symlink_to(root / "sys/drivers" / module)


def devices(root: Path, *names: str) -> None:
    """Entries of /dev; plain files, since preflight only looks whether they are there."""
    for name in names:
        written(root / "dev" / name)


def nvidia(root: Path, driver: str) -> None:
    """A host with an NVIDIA driver and eight GPUs."""
    devices(root, *(f"nvidia{n}" for n in range(8)), "nvidiactl", "nvidia-uvm")
    says = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Mon Jan 1\n"
    written(root / "proc/driver/nvidia/version", says)
    library(root / LIB / "libcuda.so.1")
    library(root / LIB / "libnvidia-ml.so.1")


def rocm(root: Path, version: str) -> None:
    """A release of ROCm in its directory."""
    written(root / f"opt/rocm-{version}/.info/version", f"{version}-74\n")
