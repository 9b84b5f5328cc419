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

ROOT = Path(__file__).resolve().parents[2]
OF_MACHINE = ("CUDA_HOME", "ROCM_PATH", "CRAY_MPICH_DIR", "CRAY_PMI_PREFIX", "CRAY_ACCEL_TARGET")


@dataclass
class SpackMachine:
    """A tree with the files of a machine; `bin` is on PATH."""

    root: Path

    def program(self, path: str, output: str) -> Path:
        file = self.file(path, f"#!/bin/sh\ncat <<'X'\n{output}\nX\n")
        file.chmod(0o755)
        return file

    def file(self, path: str, text: str = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def scope(self, *options: str, **env: str) -> dict[str, Any]:
        """Return the files of its scope."""
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
        return files


@pytest.fixture
def machine(tmp_path: Path) -> SpackMachine:
    """A SLES with gcc-native."""
    machine = SpackMachine(tmp_path)
    for name in ("gcc-13", "g++-13", "gfortran-13"):
        machine.program(f"bin/{name}", "13.3.0")
    machine.program("bin/ssh", "OpenSSH_9.6p1, OpenSSL 3.1.4")
    return machine


def entries(scope: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the externals of a package, whichever keys replace what other scopes say."""
    packages = {key.rstrip(":"): value for key, value in scope["packages"].items()}
    found = {key.rstrip(":"): value for key, value in packages.get(name, {}).items()}
    return list(found.get("externals", ()))


def specs(scope: dict[str, Any], name: str) -> list[str]:
    return [entry["spec"] for entry in entries(scope, name)]


def test_the_compiler_and_the_cpu(machine: SpackMachine) -> None:
    scope = machine.scope("--target", "zen3")
    (gcc,) = entries(scope, "gcc")
    assert gcc["spec"] == "gcc@13.3.0 languages:='c,c++,fortran'"
    assert gcc["extra_attributes"]["compilers"] == {
        "c": str(machine.root / "bin/gcc-13"),
        "cxx": str(machine.root / "bin/g++-13"),
        "fortran": str(machine.root / "bin/gfortran-13"),
    }
    assert scope["packages"]["all"] == {"target:": ["zen3"]}
    assert scope["concretizer"] == {"targets": {"granularity": "microarchitectures"}}
    assert specs(scope, "openssh") == ["openssh@9.6p1"]


def test_a_machine_without_a_fortran_compiler_is_told(machine: SpackMachine) -> None:
    (machine.root / "bin/gfortran-13").unlink()
    with pytest.raises(SystemExit, match="no gfortran beside gcc-13"):
        machine.scope()


@pytest.mark.parametrize("directory", ["usr/lib64", "usr/lib/x86_64-linux-gnu"])
def test_rdma_core_of_the_system_or_doca(
    machine: SpackMachine, directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.file(f"{directory}/libibverbs.so.1.14.50.0")
    scope = machine.scope()
    notes = capsys.readouterr().err
    assert specs(scope, "rdma-core") == []
    assert "no header infiniband/verbs.h" in notes
    machine.file("usr/include/infiniband/verbs.h")
    machine.file("usr/include/rdma/rdma_cma.h")
    scope = machine.scope()
    notes = capsys.readouterr().err
    assert specs(scope, "rdma-core") == ["rdma-core@50.0 ~pyverbs ~man_pages"]
    assert "no header" not in notes


@pytest.mark.parametrize(
    ("prefix", "plugin"),
    [
        ("opt/slurm", "lib/slurm/mpi_pmix_v5.so"),
        ("cm/shared/apps/slurm/current", "lib64/slurm/mpi_pmix.so"),
        ("opt/aws/pcs/scheduler/slurm-24.05", "lib/slurm/mpi_pmix.so"),
        ("usr", "lib/x86_64-linux-gnu/slurm-wlm/mpi_pmix.so"),
    ],
)
def test_slurm_in_its_usual_places(
    machine: SpackMachine, prefix: str, plugin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.program(f"{prefix}/bin/scontrol", "slurm 24.05.4")
    scope = machine.scope()
    notes = capsys.readouterr().err
    assert specs(scope, "slurm") == ["slurm@24-05-4-1 ~pmix sysconfdir=/etc/slurm"]
    assert "no plugin mpi_pmix" in notes
    machine.file(f"{prefix}/{plugin}")
    machine.file(f"{prefix}/etc/slurm.conf")
    scope = machine.scope()
    notes = capsys.readouterr().err
    own = machine.root / prefix
    assert specs(scope, "slurm") == [f"slurm@24-05-4-1 +pmix sysconfdir={own}/etc"]
    assert "plugin" not in notes


def test_pmix_is_offered_but_may_be_built(machine: SpackMachine) -> None:
    numbers = zip(("MAJOR", "MINOR", "RELEASE"), "602", strict=True)
    text = "".join(f"#define PMIX_VERSION_{part} {number}L\n" for part, number in numbers)
    machine.file("opt/pmix/include/pmix_version.h", text)
    scope = machine.scope()
    assert specs(scope, "pmix") == ["pmix@6.0.2"]
    assert "buildable" not in scope["packages"]["pmix"]


def test_every_cuda_is_found_and_cuda_home_is_preferred(machine: SpackMachine) -> None:
    places = ("usr/local/cuda-12.8", "usr/local/cuda-13.0")
    for place, version in zip(places, ("12.8.1", "13.0.2"), strict=True):
        machine.program(f"{place}/bin/nvcc", "release")
        machine.file(f"{place}/version.json", json.dumps({"cuda": {"version": version}}))
    sdk = "opt/nvidia/hpc_sdk/Linux_x86_64/25.3/cuda/12.9"
    machine.program(f"{sdk}/bin/nvcc", "Cuda compilation tools, release 12.9, V12.9.41")
    (machine.root / "usr/local/cuda").symlink_to(machine.root / "usr/local/cuda-12.8")
    scope = machine.scope()
    assert specs(scope, "cuda") == ["cuda@12.8.1", "cuda@13.0.2", "cuda@12.9.41"]
    assert scope["packages"]["cuda"]["buildable"] is False
    scope = machine.scope(CUDA_HOME=str(machine.root / sdk))
    assert specs(scope, "cuda") == ["cuda@12.9.41"]


@pytest.mark.parametrize(("version", "like"), [("6.4.1", "6.3.3"), ("5.7.1", "5.4.3")])
def test_every_package_of_a_rocm_release_is_an_external(
    machine: SpackMachine, version: str, like: str, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.file(f"opt/rocm-{version}/.info/version", f"{version}-83\n")
    scope = machine.scope()
    notes = capsys.readouterr().err
    locked = yaml.safe_load((ROOT / f"site/_families/spack/rocm-{like}/packages.yaml").read_text())
    for name in locked["packages"]:
        (entry,) = entries(scope, name)
        assert f"@{version}" in entry["spec"]
        assert entry["prefix"].startswith(str(machine.root / f"opt/rocm-{version}"))
    assert "rccl: no" in notes


def cray(machine: SpackMachine) -> Path:
    for version in ("8.1.9", "8.1.32"):
        machine.file(f"opt/cray/pe/mpich/{version}/ofi/gnu/12.3/lib/libmpi_gnu.so")
    machine.file("opt/cray/pe/mpich/8.1.32/gtl/lib/libmpi_gtl_hsa.so")
    machine.file("opt/cray/pe/pmi/6.1.15/lib/libpmi.so")
    machine.file("opt/cray/libfabric/1.22.0/lib64/libfabric.so")
    return machine.root / "opt/cray"


def test_the_newest_cray_mpich_for_the_gpus_of_a_site(
    machine: SpackMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    root = cray(machine)
    scope = machine.scope("--site", "mi250x-cray")
    notes = capsys.readouterr().err
    (mpich,) = entries(scope, "cray-mpich")
    assert mpich == {
        "spec": "cray-mpich@8.1.32 +wrappers +rocm ~cuda amdgpu_target=gfx90a %c=gcc"
        " ^libfabric@1.22.0 ^cray-pmi@6.1.15",
        "prefix": str(root / "pe/mpich/8.1.32/ofi/gnu/12.3"),
        "modules": ["craype-accel-amd-gfx90a", "cray-mpich/8.1.32"],
    }
    assert specs(scope, "libfabric") == ["libfabric@1.22.0 fabrics=cxi,tcp,shm,rxm,verbs"]
    assert specs(scope, "cray-pmi") == ["cray-pmi@6.1.15"]
    assert "hip was not found" in notes
    assert "gtl" not in notes
    scope = machine.scope()
    notes = capsys.readouterr().err
    assert specs(scope, "cray-mpich") == []
    assert "give SITE=" in notes


def test_the_loaded_cray_modules_count(
    machine: SpackMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    root = cray(machine)
    machine.file("opt/cray/pe/mpich/9.1.0/ofi/gnu/12.3/lib/libmpi_gnu.so")
    fabric = machine.program("opt/cray/libfabric/2.3.1/bin/fi_info", "libfabric: 2.3.1")
    loaded = {
        "CRAY_MPICH_DIR": str(root / "pe/mpich/9.1.0/ofi/gnu/12.3"),
        "CRAY_PMI_PREFIX": "/opt/cray/pe/pmi/6.1.17",
        "CRAY_ACCEL_TARGET": "nvidia90",
        "PATH": f"{fabric.parent}:{machine.root / 'bin'}:/usr/bin:/bin",
    }
    scope = machine.scope(**loaded)
    notes = capsys.readouterr().err
    (spec,) = specs(scope, "cray-mpich")
    assert spec == (
        "cray-mpich@9.1.0 +wrappers ~rocm +cuda cuda_arch=90 %c=gcc"
        " ^libfabric@2.3.1 ^cray-pmi@6.1.17"
    )
    assert "libmpi_gtl_cuda.so" in notes


def test_the_packages_of_the_efa_installer(machine: SpackMachine) -> None:
    machine.program("opt/amazon/efa/bin/fi_info", "fi_info: 2.1.0amzn3.0\nlibfabric: 2.1.0amzn3.0")
    machine.program("opt/amazon/openmpi5/bin/ompi_info", "Open MPI v5.0.8amzn1")
    machine.file("opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so")
    machine.file(
        "opt/amazon/efa_installed_packages",
        "# EFA installer version: 1.43.2\nlibfabric-aws-dev_2.1.0 libnccl-ofi_1.16.2-1_amd64\n",
    )
    scope = machine.scope()
    assert specs(scope, "libfabric") == [
        "libfabric@2.1.0amzn3.0 fabrics=efa,tcp,shm,rxm +cuda +gdrcopy"
    ]
    assert specs(scope, "openmpi") == ["openmpi@5.0.8amzn1 +cuda fabrics=ofi schedulers=slurm"]
    assert specs(scope, "aws-ofi-nccl") == ["aws-ofi-nccl@1.16.2 +cuda +aws ~tests"]
    # The stacks require their own versions of these, so Spack may build them.
    assert "buildable" not in scope["packages"]["openmpi"]
    assert "buildable" not in scope["packages"]["aws-ofi-nccl"]
    assert scope["packages"]["libfabric"]["buildable"] is False


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        (
            "usr/local/cuda-12.8/version.json",
            '{"cuda": {"version": null}}',
            "cuda-12.8 has no ver",
        ),
        ("usr/local/cuda-12.8/version.json", '{"cuda": {"version": "12 ^x"}}', "has no version"),
        ("opt/rocm-6.4.1/.info/version", "?", "rocm-6.4.1 has no version in .info/version"),
    ],
)
def test_a_version_that_is_none_is_told(
    machine: SpackMachine, capsys: pytest.CaptureFixture[str], path: str, text: str, named: str
) -> None:
    machine.file(path, text)
    assert not {"cuda", "hip"} & machine.scope()["packages"].keys()
    assert named in capsys.readouterr().err


def test_a_path_that_leads_nowhere_is_told(
    machine: SpackMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.root / "loop").symlink_to("loop")
    loop = str(machine.root / "loop")
    machine.scope(CUDA_HOME=loop, ROCM_PATH=loop)
    assert capsys.readouterr().err.count(f"{loop} has no version") == 2


def test_output_that_is_not_text_is_read(machine: SpackMachine) -> None:
    file = machine.program("usr/local/cuda-12.8/bin/nvcc", "release 12.8, V12.8.93")
    file.write_bytes(file.read_bytes().replace(b"release", b"\xff release"))
    assert specs(machine.scope(), "cuda") == ["cuda@12.8.93"]


def test_the_default_link_of_cray_and_no_accelerator_module(machine: SpackMachine) -> None:
    for path in ("mpich/8.1.32/ofi/gnu/12.3/bin", "mpich/8.1.32/gtl/lib", "pmi/6.1.15/lib"):
        (machine.root / "opt/cray/pe" / path).mkdir(parents=True)
    (machine.root / "opt/cray/libfabric/1.22.0").mkdir(parents=True)
    (machine.root / "opt/cray/pe/mpich/default").symlink_to("8.1.32")
    (spec,) = specs(machine.scope("--site", "mi250x-cray", CRAY_ACCEL_TARGET="host"), "cray-mpich")
    assert spec.startswith("cray-mpich@8.1.32 +wrappers +rocm ~cuda amdgpu_target=gfx90a ")


def test_files_of_the_staff_are_kept(
    machine: SpackMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = machine.file("scope/packages.yaml", "packages: {mine: {buildable: false}}\n")
    assert "concretizer" in machine.scope("--target", "zen3")
    assert ours.with_name("packages.yaml.old").read_text().startswith("packages: {mine")
    assert "packages.yaml.old" in capsys.readouterr().err
    assert "concretizer" not in machine.scope()
    capsys.readouterr()
    machine.file("scope/concretizer.yaml", "concretizer: {reuse: true}\n")
    assert machine.scope()["concretizer"] == {"reuse": True}
    assert not capsys.readouterr().err


def test_what_cannot_be_written_or_solved_is_one_line(machine: SpackMachine) -> None:
    cpus = "spack/lib/spack/spack/vendor/archspec/json/cpu/microarchitectures.json"
    machine.file(cpus, json.dumps({"microarchitectures": {"zen3": {}}}))
    with pytest.raises(SystemExit, match="no target 'zen33'; did you mean 'zen3'"):
        machine.scope("--target", "zen33", SPACK_ROOT=str(machine.root / "spack"))
    machine.program("bin/gcc-13", "hello world")
    with pytest.raises(SystemExit, match="no gcc-13"):
        machine.scope()
    machine.program("bin/gcc-13", "13.3.0")
    machine.file("scope", "a file")
    with pytest.raises(SystemExit, match="scope: cannot be written"):
        machine.scope()


def test_an_unknown_site_is_one_line(machine: SpackMachine) -> None:
    with pytest.raises(SystemExit, match=r"spack: .*no site 'atlantis'"):
        machine.scope("--site", "atlantis")
