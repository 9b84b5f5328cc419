# SPDX-License-Identifier: MIT
"""`make spack-externals` against trees with the files of the vendors' packages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci.spack import machine_scope

from ..files import executable, written

ROOT = Path(__file__).resolve().parents[2]
OF_MACHINE = ("CUDA_HOME", "ROCM_PATH", "CRAY_MPICH_DIR", "CRAY_PMI_PREFIX", "CRAY_ACCEL_TARGET")


@dataclass
class Scope:
    """The files of a scope, and what was said while it was written."""

    files: dict[str, Any]
    notes: str

    def __getitem__(self, name: str) -> dict[str, Any]:
        """What is said of a package, whichever keys replace what other scopes say."""
        packages = {key.rstrip(":"): value for key, value in self.files["packages"].items()}
        return {key.rstrip(":"): value for key, value in packages.get(name, {}).items()}

    def specs(self, name: str) -> list[str]:
        return [entry["spec"] for entry in self[name].get("externals", ())]

    def buildable(self, name: str) -> bool:
        return bool(self[name].get("buildable", True))


@dataclass
class SpackMachine:
    """A tree with the files of a machine; `bin` is on PATH."""

    root: Path
    capsys: pytest.CaptureFixture[str]

    def program(self, path: str, output: str) -> Path:
        return executable(self.root / path, f"cat <<'X'\n{output}\nX")

    def file(self, path: str, text: str = "") -> Path:
        return written(self.root / path, text)

    def scope(self, *options: str, **env: str) -> Scope:
        """Write its scope."""
        path = f"{self.root / 'bin'}:/usr/bin:/bin"
        directory = self.root / "scope"
        with pytest.MonkeyPatch.context() as patch:
            for name in OF_MACHINE:
                patch.delenv(name, raising=False)
            for name, value in ({"PATH": path} | env).items():
                patch.setenv(name, value)
            command = [str(directory), "--root", str(self.root), "--gcc", "gcc-13", *options]
            machine_scope.main(command)
        files: dict[str, Any] = {}
        for file in directory.glob("*.yaml"):
            files |= yaml.safe_load(file.read_text())
        return Scope(files, self.capsys.readouterr().err)


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> SpackMachine:
    """A SLES with gcc-native."""
    machine = SpackMachine(tmp_path, capsys)
    for name in ("gcc-13", "g++-13", "gfortran-13"):
        machine.program(f"bin/{name}", "13.3.0")
    machine.program("bin/ssh", "OpenSSH_9.6p1, OpenSSL 3.1.4")
    return machine


def test_the_compiler_and_the_cpu(machine: SpackMachine) -> None:
    scope = machine.scope("--target", "zen3")
    (gcc,) = scope["gcc"]["externals"]
    assert gcc["spec"] == "gcc@13.3.0 languages:='c,c++,fortran'"
    programs = {"c": "gcc-13", "cxx": "g++-13", "fortran": "gfortran-13"}
    own = {language: str(machine.root / "bin" / name) for language, name in programs.items()}
    assert gcc["extra_attributes"]["compilers"] == own
    assert scope.files["packages"]["all"] == {"target:": ["zen3"]}
    assert scope.files["concretizer"] == {"targets": {"granularity": "microarchitectures"}}
    assert scope.specs("openssh") == ["openssh@9.6p1"]


@pytest.mark.parametrize("directory", ["usr/lib64", "usr/lib/x86_64-linux-gnu"])
def test_rdma_core_of_the_system_or_doca(machine: SpackMachine, directory: str) -> None:
    machine.file(f"{directory}/libibverbs.so.1.14.50.0")
    scope = machine.scope()
    assert scope.specs("rdma-core") == []
    assert "no header infiniband/verbs.h" in scope.notes
    machine.file("usr/include/infiniband/verbs.h")
    machine.file("usr/include/rdma/rdma_cma.h")
    scope = machine.scope()
    assert scope.specs("rdma-core") == ["rdma-core@50.0 ~pyverbs ~man_pages"]
    assert "no header" not in scope.notes


SLURMS = [
    ("opt/slurm", "lib/slurm/mpi_pmix_v5.so"),
    ("cm/shared/apps/slurm/current", "lib64/slurm/mpi_pmix.so"),
    ("opt/aws/pcs/scheduler/slurm-24.05", "lib/slurm/mpi_pmix.so"),
    ("usr", "lib/x86_64-linux-gnu/slurm-wlm/mpi_pmix.so"),
]


@pytest.mark.parametrize(("prefix", "plugin"), SLURMS)
def test_slurm_in_its_usual_places(machine: SpackMachine, prefix: str, plugin: str) -> None:
    machine.program(f"{prefix}/bin/scontrol", "slurm 24.05.4")
    scope = machine.scope()
    assert scope.specs("slurm") == ["slurm@24-05-4-1 ~pmix sysconfdir=/etc/slurm"]
    assert "no plugin mpi_pmix" in scope.notes
    machine.file(f"{prefix}/{plugin}")
    machine.file(f"{prefix}/etc/slurm.conf")
    scope = machine.scope()
    own = machine.root / prefix
    assert scope.specs("slurm") == [f"slurm@24-05-4-1 +pmix sysconfdir={own}/etc"]
    assert "plugin" not in scope.notes


def test_pmix_is_offered_but_may_be_built(machine: SpackMachine) -> None:
    numbers = zip(("MAJOR", "MINOR", "RELEASE"), "602", strict=True)
    text = "".join(f"#define PMIX_VERSION_{part} {number}L\n" for part, number in numbers)
    machine.file("opt/pmix/include/pmix_version.h", text)
    scope = machine.scope()
    assert scope.specs("pmix") == ["pmix@6.0.2"]
    assert scope.buildable("pmix")


def test_every_cuda_is_found_and_cuda_home_is_preferred(machine: SpackMachine) -> None:
    for place, version in (("12.8", "12.8.1"), ("13.0", "13.0.2")):
        machine.program(f"usr/local/cuda-{place}/bin/nvcc", "release")
        text = json.dumps({"cuda": {"version": version}})
        machine.file(f"usr/local/cuda-{place}/version.json", text)
    sdk = "opt/nvidia/hpc_sdk/Linux_x86_64/25.3/cuda/12.9"
    # What it prints need not be UTF-8.
    nvcc = machine.program(f"{sdk}/bin/nvcc", "Cuda compilation tools, release 12.9, V12.9.41")
    nvcc.write_bytes(nvcc.read_bytes().replace(b"release", b"\xff release"))
    (machine.root / "usr/local/cuda").symlink_to(machine.root / "usr/local/cuda-12.8")
    scope = machine.scope()
    assert scope.specs("cuda") == ["cuda@12.8.1", "cuda@13.0.2", "cuda@12.9.41"]
    assert not scope.buildable("cuda")
    scope = machine.scope(CUDA_HOME=str(machine.root / sdk))
    assert scope.specs("cuda") == ["cuda@12.9.41"]


@pytest.mark.parametrize(
    ("version", "like", "place"),
    [
        ("6.4.1", "6.3.3", "rocm-6.4.1"),
        ("5.7.1", "5.4.3", "rocm-5.7.1"),
        ("10.0.0", "7.2.3", "rocm/core-10.0"),
    ],
)
def test_every_package_of_a_rocm_release_is_an_external(
    machine: SpackMachine, version: str, like: str, place: str
) -> None:
    machine.file(f"opt/{place}/.info/version", f"{version}-83\n")
    scope = machine.scope()
    locked = yaml.safe_load((ROOT / f"site/_families/spack/rocm-{like}/packages.yaml").read_text())
    for name in locked["packages"]:
        (entry,) = scope[name]["externals"]
        assert f"@{version}" in entry["spec"]
        assert entry["prefix"].startswith(str(machine.root / f"opt/{place}"))
    assert "rccl: no" in scope.notes
    llvm = scope["llvm-amdgpu"]["externals"][0]["prefix"]
    assert llvm.endswith(f"opt/{place}/lib/llvm" if "core-" in place else f"opt/{place}/llvm")


@pytest.fixture
def cray(machine: SpackMachine) -> SpackMachine:
    for version in ("8.1.9", "8.1.32"):
        machine.file(f"opt/cray/pe/mpich/{version}/ofi/gnu/12.3/lib/libmpi_gnu.so")
    machine.file("opt/cray/pe/mpich/8.1.32/gtl/lib/libmpi_gtl_hsa.so")
    machine.file("opt/cray/pe/pmi/6.1.15/lib/libpmi.so")
    machine.file("opt/cray/libfabric/1.22.0/lib64/libfabric.so")
    return machine


def test_the_newest_cray_mpich_for_the_gpus_of_a_site(cray: SpackMachine) -> None:
    spec = (
        "cray-mpich@8.1.32 +wrappers +rocm ~cuda amdgpu_target=gfx90a %c=gcc"
        " ^libfabric@1.22.0 ^cray-pmi@6.1.15"
    )
    scope = cray.scope("--site", "mi250x-cray")
    assert scope["cray-mpich"]["externals"] == [
        {
            "spec": spec,
            "prefix": str(cray.root / "opt/cray/pe/mpich/8.1.32/ofi/gnu/12.3"),
            "modules": ["craype-accel-amd-gfx90a", "cray-mpich/8.1.32"],
        }
    ]
    assert scope.specs("libfabric") == ["libfabric@1.22.0 fabrics=cxi,tcp,shm,rxm,verbs"]
    assert scope.specs("cray-pmi") == ["cray-pmi@6.1.15"]
    assert "hip was not found" in scope.notes
    assert "gtl" not in scope.notes
    scope = cray.scope()
    assert scope.specs("cray-mpich") == []
    assert "give SITE=" in scope.notes
    # The link of Cray, and no module of an accelerator.
    (cray.root / "opt/cray/pe/mpich/default").symlink_to("8.1.32")
    scope = cray.scope("--site", "mi250x-cray", CRAY_ACCEL_TARGET="host")
    assert scope.specs("cray-mpich") == [spec]


def test_the_loaded_cray_modules_count(cray: SpackMachine) -> None:
    cray.file("opt/cray/pe/mpich/9.1.0/ofi/gnu/12.3/lib/libmpi_gnu.so")
    fabric = cray.program("opt/cray/libfabric/2.3.1/bin/fi_info", "libfabric: 2.3.1")
    scope = cray.scope(
        CRAY_MPICH_DIR=str(cray.root / "opt/cray/pe/mpich/9.1.0/ofi/gnu/12.3"),
        CRAY_PMI_PREFIX="/opt/cray/pe/pmi/6.1.17",
        CRAY_ACCEL_TARGET="nvidia90",
        PATH=f"{fabric.parent}:{cray.root / 'bin'}:/usr/bin:/bin",
    )
    assert scope.specs("cray-mpich") == [
        "cray-mpich@9.1.0 +wrappers ~rocm +cuda cuda_arch=90 %c=gcc"
        " ^libfabric@2.3.1 ^cray-pmi@6.1.17"
    ]
    assert "libmpi_gtl_cuda.so" in scope.notes


def test_the_libfabric_of_the_efa_installer(machine: SpackMachine) -> None:
    machine.program("opt/amazon/efa/bin/fi_info", "fi_info: 2.1.0amzn3.0\nlibfabric: 2.1.0amzn3.0")
    scope = machine.scope()
    assert scope.specs("libfabric") == [
        "libfabric@2.1.0amzn3.0 fabrics=efa,tcp,shm,rxm +cuda +gdrcopy"
    ]
    assert scope.buildable("libfabric") is False


def test_a_version_that_is_none_is_told(machine: SpackMachine) -> None:
    cuda = "usr/local/cuda-12.8/version.json"
    for path, text, named in (
        (cuda, '{"cuda": {"version": null}}', "cuda-12.8 has no ver"),
        (cuda, '{"cuda": {"version": "12 ^x"}}', "has no version"),
        ("opt/rocm-6.4.1/.info/version", "?", "rocm-6.4.1 has no version in .info/version"),
    ):
        machine.file(path, text)
        scope = machine.scope()
        assert not {"cuda", "hip"} & scope.files["packages"].keys()
        assert named in scope.notes
    (machine.root / "loop").symlink_to("loop")
    loop = str(machine.root / "loop")
    assert machine.scope(CUDA_HOME=loop, ROCM_PATH=loop).notes.count(f"{loop} has no version") == 2


def test_files_of_the_staff_are_kept(machine: SpackMachine) -> None:
    ours = machine.file("scope/packages.yaml", "packages: {mine: {buildable: false}}\n")
    scope = machine.scope("--target", "zen3")
    assert "concretizer" in scope.files
    assert ours.with_name("packages.yaml.old").read_text().startswith("packages: {mine")
    assert "packages.yaml.old" in scope.notes
    assert "concretizer" not in machine.scope().files
    machine.file("scope/concretizer.yaml", "concretizer: {reuse: true}\n")
    scope = machine.scope()
    assert scope.files["concretizer"] == {"reuse": True}
    assert not scope.notes


def test_what_cannot_be_written_or_solved_is_one_line(machine: SpackMachine) -> None:
    def says(words: str, *options: str, **env: str) -> None:
        with pytest.raises(SystemExit, match=words):
            machine.scope(*options, **env)

    cpus = "spack/lib/spack/spack/vendor/archspec/json/cpu/microarchitectures.json"
    machine.file(cpus, json.dumps({"microarchitectures": {"zen3": {}}}))
    spack = str(machine.root / "spack")
    says("no target 'zen33'; did you mean 'zen3'", "--target", "zen33", SPACK_ROOT=spack)
    says(r"spack: .*no site 'atlantis'", "--site", "atlantis")
    machine.program("bin/gcc-13", "hello world")
    says("no gcc-13")
    machine.program("bin/gcc-13", "13.3.0")
    machine.file("scope", "a file")
    says("scope: cannot be written")
    (machine.root / "bin/gfortran-13").unlink()
    says("no gfortran beside gcc-13")
