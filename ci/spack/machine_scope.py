# SPDX-License-Identifier: MIT
"""Write the scope of this machine: its compiler, and the externals that it has, by detection.

$ machine_scope.py DIR [--gcc gcc-13] [--target zen3]

CUDA, ROCm and Cray MPICH are those of the environment (CUDA_HOME, ROCM_PATH, the loaded modules),
or in their usual places; Slurm, ssh and rdma-core are those of the system.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
ROCM_SCOPE = ROOT / "site/_families/spack/rocm-6.3.3/packages.yaml"
HEAD = "# Written by ci/spack/machine_scope.py; add what it could not find.\n"
Packages = dict[str, Any]


def printed(*command: str) -> str:
    """Return what a program prints; nothing if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def version_in(text: str, before: str = "") -> str:
    """Return the first version number of a text."""
    found = re.search(before + r"(?P<version>\d+(?:\.\d+)+)", text)
    return found["version"] if found else ""


def external(spec: str, prefix: str | Path, **more: Any) -> Packages:
    return {"buildable": False, "externals": [{"spec": spec, "prefix": str(prefix), **more}]}


def prefix_of(program: str) -> Path | None:
    """Return the directory above `bin` of a program on PATH."""
    found = shutil.which(program)
    return Path(found).resolve().parents[1] if found else None


def compiler(gcc: str) -> tuple[str, Packages]:
    """Return version and external of a gcc, whose suffix its g++ and gfortran share."""
    version = printed(gcc, "-dumpfullversion").strip()
    names = {"c": "gcc", "cxx": "g++", "fortran": "gfortran"}
    paths = {
        language: shutil.which(re.sub(r"gcc(?=[^/]*$)", lambda _, name=name: name, gcc))
        for language, name in names.items()
    }
    missing = [names[language] for language, path in paths.items() if not path]
    if missing or not version:
        sys.exit(f"spack: no {', '.join(missing) or gcc} beside {gcc}; install it, or set GCC=")
    more = {"extra_attributes": {"compilers": paths}}
    spec = f"gcc@{version} languages:='c,c++,fortran'"
    return version, external(spec, Path(str(paths["c"])).parents[1], **more)


def cuda() -> Iterator[tuple[str, Packages]]:
    places = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    for place in (Path(each).resolve() for each in places if each):
        if version := version_in(printed(str(place / "bin/nvcc"), "--version"), before="V"):
            yield "cuda", external(f"cuda@{version}", place)
            return


def rocm() -> Iterator[tuple[str, Packages]]:
    """Yield all packages of the release that is installed, as those of the committed scope."""
    place = Path(os.environ.get("ROCM_PATH", "/opt/rocm")).resolve()
    file = place / ".info/version"
    if version := version_in(file.read_text()) if file.exists() else "":
        text = ROCM_SCOPE.read_text().replace("/opt/rocm-6.3.3", str(place))
        yield from yaml.safe_load(text.replace("6.3.3", version))["packages"].items()


def system() -> Iterator[tuple[str, Packages]]:
    if version := version_in(printed("scontrol", "--version")):
        spec = f"slurm@{version.replace('.', '-')}-1 +pmix sysconfdir=/etc/slurm"
        yield "slurm", external(spec, prefix_of("scontrol") or "/usr")
    if found := re.search(r"OpenSSH_(?P<version>[\w.]+)", printed("ssh", "-V")):
        yield "openssh", external(f"openssh@{found['version']}", prefix_of("ssh") or "/usr")
    version = version_in(printed("pkg-config", "--modversion", "libibverbs"))
    where = printed("pkg-config", "--variable=prefix", "libibverbs").strip()
    if where and version.count(".") >= 3:  # 1.14.50.0 is of rdma-core 50.0
        release = ".".join(version.split(".")[2:4])
        yield "rdma-core", external(f"rdma-core@{release} ~pyverbs ~man_pages", where)


def cray() -> Iterator[tuple[str, Packages]]:
    """Yield the MPICH, PMI and libfabric of the loaded modules."""
    names = ("CRAY_MPICH_VERSION", "CRAY_MPICH_DIR", "CRAY_PMI_PREFIX")
    version, mpich, pmi = (os.environ.get(name, "") for name in names)
    fabric = version_in(printed("fi_info", "--version"), before="libfabric: ")
    accelerator = os.environ.get("CRAY_ACCEL_TARGET", "").removeprefix("amd_")
    if not (version and mpich and pmi and fabric and accelerator):
        return
    nvidia = accelerator.startswith("nvidia")
    arch = accelerator.removeprefix("nvidia")
    gpus = f"~rocm +cuda cuda_arch={arch}" if nvidia else f"+rocm ~cuda amdgpu_target={arch}"
    own = f"^libfabric@{fabric} ^cray-pmi@{Path(pmi).name}"
    yield "cray-mpich", external(f"cray-mpich@{version} +wrappers {gpus} %c=gcc {own}", mpich)
    yield "cray-pmi", external(f"cray-pmi@{Path(pmi).name}", pmi)
    spec = f"libfabric@{fabric} fabrics=cxi,tcp,shm,rxm,verbs"
    yield "libfabric", external(spec, prefix_of("fi_info") or "/opt/cray")


def scope(gcc: str, target: str) -> dict[str, dict[str, Any]]:
    """Return the files of the scope by name. A key with a colon replaces what others say."""
    version, found = compiler(gcc)
    languages = {f"{name}:": {"prefer": [f"gcc@{version}"]} for name in ("c", "cxx", "fortran")}
    detected = [*cuda(), *rocm(), *system(), *cray()]
    packages = {**languages, "gcc:": found, **{f"{name}:": each for name, each in detected}}
    # What the stacks require of these packages holds for externals too.
    for name in ("cuda:", "cray-mpich:", "libfabric:"):
        if name in packages:
            packages[name[:-1]] = {"externals:": packages.pop(name)["externals"]}
    used = [{"spec": f"%{x}=gcc@{version}", "when": f"%{x}"} for x in ("c", "cxx", "fortran")]
    files = {
        "packages": packages,
        "toolchains": {"system-gcc:": used},
        "modules": {"default": {"lmod": {"core_compilers:": [f"gcc@{version}"]}}},
    }
    if target:
        packages["all"] = {"target:": [target]}
        files["concretizer"] = {"targets": {"granularity": "microarchitectures"}}
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the scope of this machine.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="the scope to write")
    parser.add_argument("--gcc", default="gcc", help="the C compiler (default: gcc)")
    parser.add_argument("--target", default="", help="CPU, as Spack names it (default: generic)")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    for name, content in scope(args.gcc, args.target).items():
        text = yaml.safe_dump({name: content}, sort_keys=False)
        (args.directory / f"{name}.yaml").write_text(HEAD + text)


if __name__ == "__main__":
    main()
