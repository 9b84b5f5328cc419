# SPDX-License-Identifier: MIT
"""Preflight on images that are broken one line at a time, made of real ELF files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from trees import (
    LIB,
    c_library,
    devices,
    fingerprint,
    library,
    mpi,
    nvidia,
    program,
    rdma,
    variables,
)

from busbar import cli

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc makes the test libraries")


@dataclass
class Case:
    """One image, one host, one site."""

    image: Path
    host: Path
    site: str = "mi250x-cray"
    inject: list[str] = field(default_factory=list)

    def run(self, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        """The report of ``busbar preflight --json``, its exit status among it."""
        words = ["preflight", str(self.image), "--site", self.site, "--json"]
        words += ["--host-root", str(self.host), "--program", "/usr/bin/app"]
        for directory in self.inject:
            words += ["--inject", directory]
        status = cli.main(words)
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        report["status"] = status
        report["by_name"] = {line["name"]: line for line in report["lines"]}
        return report


Fault = tuple[Callable[[Case], None], str, str, str]
"""What breaks it, the line that says so, its status, words of its reason."""


@pytest.fixture(autouse=True)
def _srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An srun that lists what that of an HPE Cray EX does."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text("#!/bin/sh\nprintf 'MPI plugin types are...\\n\\tnone\\n\\tcray_shasta\\n'\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")


@pytest.fixture
def cray(tmp_path: Path) -> Case:
    """An MPICH program with RCCL, and a Cray host whose libraries fit it."""
    image, host = tmp_path / "image", tmp_path / "host"
    c_library(image, "2.36")
    own = mpi(image, "libmpi.so.12")
    plugin = library(image / LIB / "librccl-net.so")
    library(image / LIB / "librccl.so.1")
    program(image, [own])
    assert plugin.exists()

    c = c_library(host, "2.31")
    cray_lib = host / "opt/cray/pe/lib64"
    cxi = library(cray_lib / "libcxi.so.1")
    fabric = library(
        host / "opt/cray/libfabric/1.15.2.0/lib64/libfabric.so.1",
        needed=[cxi],
        text="FI_CXI_DEFAULT_CQ_SIZE",
        defines="FABRIC_1.5",
    )
    pmi2 = library(cray_lib / "libpmi2.so.0")
    library(
        host / "opt/cray/pe/mpich/default/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12",
        needed=[fabric, pmi2, c],
        uses="GLIBC_2.31",
    )
    library(host / "opt/cray/pe/mpich/default/gtl/lib/libmpi_gtl_hsa.so.0")
    devices(host, "kfd", *(f"dri/renderD{128 + n}" for n in range(8)), "cxi0", "cxi1")
    release = host / "opt/rocm-6.3.3/.info/version"
    release.parent.mkdir(parents=True)
    release.write_text("6.3.3-74\n")
    return Case(image, host)


@pytest.fixture
def cuda(tmp_path: Path) -> Case:
    """An Open MPI program with UCX and CUDA, and a host with GPUs and InfiniBand devices."""
    image, host = tmp_path / "image", tmp_path / "host"
    c_library(image, "2.36")
    verbs = library(image / LIB / "libibverbs.so.1", defines="IBVERBS_PRIVATE_34")
    library(image / LIB / "libmlx5.so.1")
    (image / LIB / "libibverbs").mkdir()
    (image / LIB / "libibverbs/libmlx5-rdmav34.so").symlink_to("../libmlx5.so.1")
    library(image / LIB / "ucx/libuct_ib.so.0", needed=[verbs])
    library(image / LIB / "ucx/libuct_cuda.so.0")
    library(image / LIB / "ucx/libuct_cma.so.0")
    uct = library(image / LIB / "libuct.so.0")
    own = mpi(image, "libmpi.so.40", needed=[uct])
    program(image, [own, library(image / LIB / "libcudart.so.12")])
    c_library(host, "2.36")
    nvidia(host, "570.86.15")
    devices(host, "infiniband/uverbs0")
    rdma(host, "mlx5_core")
    fingerprint(image, "cuda")
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/sh\nprintf 'MPI plugin types are...\\n\\tpmix\\n\\tpmi2\\n'\n")
    return Case(image, host, site="h20-roce")


def test_a_fitting_cray_image_is_ready(cray: Case, capsys: pytest.CaptureFixture[str]) -> None:
    report = cray.run(capsys)
    assert report["verdict"] == "ready", report["lines"]
    assert report["status"] == 0
    origins = {library["name"]: library["origin"] for library in report["libraries"]}
    assert origins["libmpi.so.12"] == "injected"
    assert origins["libfabric.so.1"] == "injected"
    assert origins["librccl.so.1"] == "image"
    assert "--mpi=cray_shasta" in report["command"]
    assert "lib-abi-mpich:/host/0:ro" in report["command"]
    assert "--env LD_PRELOAD=/host/1/libmpi_gtl_hsa.so.0" in report["command"]


def test_a_fitting_cuda_image_is_ready(cuda: Case, capsys: pytest.CaptureFixture[str]) -> None:
    report = cuda.run(capsys)
    assert report["verdict"] == "ready", report["lines"]
    assert "--nv" in report["command"]
    assert "--mpi=pmix" in report["command"]


def _old_glibc(case: Case) -> None:
    c_library(case.image, "2.28")


def _open_mpi(case: Case) -> None:
    (case.image / LIB / "libmpi.so.12").unlink()
    program(case.image, [mpi(case.image, "libmpi.so.40")])


def _no_cray_mpich(case: Case) -> None:
    shutil.rmtree(case.host / "opt/cray")


def _no_provider(case: Case) -> None:
    fabric = case.host / "opt/cray/libfabric/1.15.2.0/lib64/libfabric.so.1"
    library(fabric, text="FI_TCP_IFACE")


def _no_cxi_library(case: Case) -> None:
    (case.host / "opt/cray/pe/lib64/libcxi.so.1").unlink()


def _old_libfabric(case: Case) -> None:
    newer = library(case.host / "newer/libfabric.so.1", defines="FABRIC_1.9")
    mpich = case.host / "opt/cray/pe/mpich/default/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12"
    library(mpich, needed=[newer], uses="FABRIC_1.9")


def _no_gtl(case: Case) -> None:
    shutil.rmtree(case.host / "opt/cray/pe/mpich/default/gtl")


def _plugin_of_the_other_vendor(case: Case) -> None:
    (case.image / LIB / "librccl-net.so").rename(case.image / LIB / "libnccl-net.so")


def _no_kfd(case: Case) -> None:
    (case.host / "dev/kfd").unlink()


def _no_cxi_device(case: Case) -> None:
    (case.host / "dev/cxi0").unlink()
    (case.host / "dev/cxi1").unlink()


def _rocm_too_new(case: Case) -> None:
    release = case.image / "opt/rocm-7.2.0/.info/version"
    release.parent.mkdir(parents=True)
    release.write_text("7.2.0-1\n")


def _wrong_stack(case: Case) -> None:
    fingerprint(case.image, "host")


def _debians_mpich(case: Case) -> None:
    program(case.image, [mpi(case.image, "libmpich.so.12")])


def _gtl_without_hip(case: Case) -> None:
    hip = library(case.host / "hip/libamdhip64.so.6")
    library(case.host / "opt/cray/pe/mpich/default/gtl/lib/libmpi_gtl_hsa.so.0", needed=[hip])
    shutil.rmtree(case.host / "hip")


def _plugin_that_does_not_load(case: Case) -> None:
    newer = library(case.image / LIB / "libhwloc.so.15")
    library(case.image / LIB / "librccl-net.so", needed=[newer])
    newer.unlink()


def _plugin_that_must_be_named(case: Case) -> None:
    (case.image / LIB / "librccl-net.so").rename(case.image / LIB / "librccl-net-ofi.so")


def _newer_libnuma_of_the_host(case: Case) -> None:
    newer = c_library(case.host / "newer", "2.38")
    numa = library(case.host / LIB / "libnuma.so.1", needed=[newer], uses="GLIBC_2.38")
    program(case.image, [case.image / LIB / "libmpi.so.12", numa])


def _another_machine(case: Case) -> None:
    libc = case.image / LIB / "libc.so.6"
    header = bytearray(libc.read_bytes())
    header[18] = 183  # e_machine: AArch64
    libc.write_bytes(header)


def _damaged_library(case: Case) -> None:
    libc = case.image / LIB / "libc.so.6"
    libc.write_bytes(libc.read_bytes()[:100])


def _newer_libstdcxx_of_the_host(case: Case) -> None:
    """What is injected was compiled by a newer gcc; the image's libstdc++ is found first."""
    library(case.image / LIB / "libstdc++.so.6", defines="GLIBCXX_3.4.28")
    newer = library(case.host / LIB / "libstdc++.so.6", defines="GLIBCXX_3.4.28 GLIBCXX_3.4.30")
    mpich = case.host / "opt/cray/pe/mpich/default/ofi/gnu/12.3/lib-abi-mpich/libmpi.so.12"
    fabric = case.host / "opt/cray/libfabric/1.15.2.0/lib64/libfabric.so.1"
    library(mpich, needed=[fabric, newer], uses="GLIBCXX_3.4.30")


def _provider_of_a_newer_system(case: Case) -> None:
    """The provider is a plugin of the host that no library names, and needs a newer C library."""
    newer = c_library(case.host / "newer", "2.38")
    lib64 = case.host / "opt/cray/libfabric/1.15.2.0/lib64"
    library(lib64 / "libfabric/libcxi-fi.so", needed=[newer], uses="GLIBC_2.38")


CRAY = [
    (_newer_libstdcxx_of_the_host, "libraries", "broken", "needs GLIBCXX_3.4.30, which"),
    (_provider_of_a_newer_system, "libfabric", "slow", "needs GLIBC_2.38, which"),
    (_debians_mpich, "mpi-abi", "broken", "libmpich.so.12, which is what Debian"),
    (_gtl_without_hip, "gtl", "broken", "libamdhip64.so.6 is missing"),
    (_plugin_that_does_not_load, "net-plugin", "broken", "libhwloc.so.15 is missing"),
    (_plugin_that_must_be_named, "net-plugin", "broken", "does not look for"),
    (_newer_libnuma_of_the_host, "glibc", "broken", "libnuma.so.1 of the host needs glibc 2.38"),
    (_another_machine, "glibc", "broken", "for AArch64, that of the host for x64"),
    (_damaged_library, "glibc", "broken", "no C library that can be read"),
    (_old_glibc, "glibc", "broken", "needs glibc 2.31, the image has 2.28"),
    (_open_mpi, "mpi-abi", "broken", "libmpi.so.40"),
    (_no_cray_mpich, "mpi-abi", "slow", "Cray MPICH is not on this host"),
    (_no_provider, "libfabric", "slow", "no provider cxi"),
    (_no_cxi_library, "libfabric", "slow", "libcxi.so.1 is missing"),
    (_old_libfabric, "libfabric", "broken", "FABRIC_1.9"),
    (_no_gtl, "gtl", "broken", "MPICH_GPU_SUPPORT_ENABLED=1"),
    (_plugin_of_the_other_vendor, "net-plugin", "broken", "does not look for"),
    (_no_kfd, "gpu-devices", "broken", "/dev/kfd"),
    (_no_cxi_device, "fabric-devices", "broken", "cxi"),
    (_rocm_too_new, "gpu-driver", "broken", "ROCm 7.2.0"),
    (_wrong_stack, "fingerprint", "broken", "stack host"),
]


def _old_driver(case: Case) -> None:
    version = case.host / "proc/driver/nvidia/version"
    version.write_text(version.read_text().replace("570.86.15", "470.82.01"))


def _compat_first(case: Case) -> None:
    compat = case.image / "usr/local/cuda-12.4/compat"
    library(compat / "libcuda.so.550.54.14")
    (compat / "libcuda.so.1").symlink_to("libcuda.so.550.54.14")
    variables(case.image, LD_LIBRARY_PATH="/usr/local/cuda-12.4/compat")


def _no_driver(case: Case) -> None:
    shutil.rmtree(case.host / "proc")


def _no_driver_libraries(case: Case) -> None:
    (case.host / LIB / "libcuda.so.1").unlink()


def _ucx_without_cuda(case: Case) -> None:
    (case.image / LIB / "ucx/libuct_cuda.so.0").unlink()


def _ucx_without_verbs(case: Case) -> None:
    (case.image / LIB / "ucx/libuct_ib.so.0").unlink()


def _ucx_without_cma(case: Case) -> None:
    (case.image / LIB / "ucx/libuct_cma.so.0").unlink()


def _ucx_over_tcp(case: Case) -> None:
    script = case.image / ".singularity.d/env/90-environment.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("export UCX_TLS=tcp,self,cuda\n")


def _no_ibverbs(case: Case) -> None:
    (case.image / LIB / "libibverbs.so.1").unlink()


def _no_rdma_provider(case: Case) -> None:
    (case.image / LIB / "libibverbs/libmlx5-rdmav34.so").unlink()


def _no_ucx(case: Case) -> None:
    mpi(case.image, "libmpi.so.40")


def _no_device(case: Case) -> None:
    (case.host / "dev/infiniband/uverbs0").unlink()


def _missing_library(case: Case) -> None:
    extra = library(case.image / LIB / "libextra.so.1")
    program(case.image, [case.image / LIB / "libmpi.so.40", extra])
    extra.unlink()


def _stub_first(case: Case) -> None:
    stubs = case.image / "usr/local/cuda-12.4/targets/x86_64-linux/lib/stubs"
    library(stubs / "libcuda.so.1")
    variables(case.image, LD_LIBRARY_PATH=f"/{stubs.relative_to(case.image)}")


def _newer_cuda_than_compat(case: Case) -> None:
    compat = case.image / "usr/local/cuda-12.8/compat"
    library(compat / "libcuda.so.575.57.08")
    (compat / "libcuda.so.1").symlink_to("libcuda.so.575.57.08")
    variables(case.image, LD_LIBRARY_PATH="/usr/local/cuda-12.8/compat")
    _newer_runtime(case)


def _newer_runtime(case: Case) -> None:
    own = case.image / LIB / "libmpi.so.40"
    program(case.image, [own, library(case.image / LIB / "libcudart.so.13")])


def _newer_nccl(case: Case) -> None:
    library(case.image / LIB / "libnccl.so.2", text="NCCL version 2.28.9+cuda13.0")


def _static_runtime(case: Case) -> None:
    own = case.image / LIB / "libmpi.so.40"
    library(case.image / "usr/bin/app", needed=[own], text="libcuda.so.1")


def _newer_static_runtime(case: Case) -> None:
    _static_runtime(case)
    variables(case.image, CUDA_VERSION="13.0.1")


def _one_gpu_fell_off(case: Case) -> None:
    (case.host / "dev/nvidia5").unlink()


def _uct_cuda_that_does_not_load(case: Case) -> None:
    runtime = library(case.image / LIB / "libcudart.so.11.0")
    library(case.image / LIB / "ucx/libuct_cuda.so.0", needed=[runtime])
    runtime.unlink()


def _rdma_core_of_two(case: Case) -> None:
    library(case.image / LIB / "libibverbs.so.1", defines="IBVERBS_PRIVATE_25")


def _rdma_core_without_the_device(case: Case) -> None:
    folder = case.image / LIB / "libibverbs"
    (folder / "libmlx5-rdmav34.so").rename(folder / "libefa-rdmav34.so")


def _damaged_mpi(case: Case) -> None:
    (case.image / LIB / "libmpi.so.40").write_bytes(b"no library")


def _damaged_libcuda_of_the_host(case: Case) -> None:
    (case.host / LIB / "libcuda.so.1").write_bytes(b"")


def _damaged_rdma_driver(case: Case) -> None:
    (case.image / LIB / "libibverbs/libmlx5-rdmav34.so").write_bytes(b"no library")


CUDA = [
    (_damaged_mpi, "libraries", "broken", "libmpi.so.40 (image) is no library"),
    (_damaged_libcuda_of_the_host, "gpu-libraries", "broken", "no libcuda.so.1"),
    (_damaged_rdma_driver, "ucx", "slow", "libmlx5-rdmav34.so does not load"),
    (_stub_first, "gpu-driver", "broken", "a stub for linking"),
    (_newer_runtime, "gpu-driver", "broken", "CUDA 13 (libcudart.so.13) needs driver 580"),
    (_newer_cuda_than_compat, "gpu-driver", "broken", "with cuda-compat 575.57.8"),
    (_newer_nccl, "gpu-driver", "broken", "built with 13.0) needs driver 580"),
    (_static_runtime, "gpu-driver", "broken", "runtime of unknown version"),
    (_newer_static_runtime, "gpu-driver", "broken", "CUDA 13.0 (/usr/bin/app) needs driver 580"),
    (_one_gpu_fell_off, "gpu-devices", "broken", "7 GPUs here, 8 by the site"),
    (_uct_cuda_that_does_not_load, "ucx-gpu", "broken", "libcudart.so.11.0 is missing"),
    (_rdma_core_of_two, "ucx", "slow", "libmlx5-rdmav34.so is not for"),
    (_rdma_core_without_the_device, "ucx", "slow", "has no libmlx5-rdmav"),
    (_old_driver, "gpu-driver", "broken", "needs driver 525"),
    (_compat_first, "gpu-driver", "broken", "803"),
    (_no_driver, "gpu-driver", "broken", "no NVIDIA driver"),
    (_no_driver_libraries, "gpu-libraries", "broken", "libcuda.so.1"),
    (_ucx_without_cuda, "ucx-gpu", "broken", "libuct_cuda"),
    (_ucx_without_verbs, "ucx", "slow", "no libuct_ib"),
    (_ucx_without_cma, "shared-memory", "slow", "copied twice"),
    (_ucx_over_tcp, "shared-memory", "slow", "UCX_TLS=tcp,self,cuda"),
    (_no_ibverbs, "ucx", "slow", "libibverbs.so.1 is missing"),
    (_no_rdma_provider, "ucx", "slow", "has no libmlx5-rdmav"),
    (_no_ucx, "ucx", "slow", "loads no UCX"),
    (_no_device, "fabric-devices", "broken", "verbs"),
    (_missing_library, "libraries", "broken", "libextra.so.1"),
]


def _names(cases: list[Fault]) -> list[str]:
    return [case[0].__name__.strip("_") for case in cases]


@pytest.mark.parametrize("fault", CRAY, ids=_names(CRAY))
def test_each_fault_of_a_cray_image(
    cray: Case,
    capsys: pytest.CaptureFixture[str],
    fault: Fault,
) -> None:
    fault[0](cray)
    _assert_line(cray.run(capsys), *fault[1:])


@pytest.mark.parametrize("fault", CUDA, ids=_names(CUDA))
def test_each_fault_of_a_cuda_image(
    cuda: Case,
    capsys: pytest.CaptureFixture[str],
    fault: Fault,
) -> None:
    fault[0](cuda)
    _assert_line(cuda.run(capsys), *fault[1:])


def _assert_line(report: dict[str, Any], line: str, status: str, words: str) -> None:
    found = report["by_name"][line]
    assert found["status"] == status, found
    assert words in found["reason"]
    assert report["verdict"] in (status, "broken")
    assert report["status"] == 1


def test_a_driver_in_a_directory_of_its_own(
    cuda: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on virtual machines: links from the loader's directories, and nothing in /proc."""
    own = cuda.host / "usr/local/nvidia/lib64"
    real = library(own / "libcuda.so.1")
    library(cuda.image / LIB / "ucx/libuct_cuda.so.0", needed=[real])
    real.rename(own / "libcuda.so.570.86.15")
    link = cuda.host / LIB / "libcuda.so.1"
    link.unlink()
    link.symlink_to("/usr/local/nvidia/lib64/libcuda.so.1")
    (own / "libcuda.so.1").symlink_to("libcuda.so.570.86.15")
    version = cuda.host / "sys/module/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("570.86.15\n")
    shutil.rmtree(cuda.host / "proc")
    report = cuda.run(capsys)
    assert report["verdict"] == "ready", report["lines"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n",
        ),
        ("sys/module/nvidia/version", "570.86.15\n"),
    ],
)
def test_the_driver_is_read_wherever_it_says_its_version(
    cuda: Case, capsys: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    shutil.rmtree(cuda.host / "proc")
    (cuda.host / file).parent.mkdir(parents=True)
    (cuda.host / file).write_text(text)
    found = cuda.run(capsys)["by_name"]["gpu-driver"]
    assert found["reason"].startswith("driver 570.86.15 runs CUDA 12")


def test_a_pmi_that_nobody_speaks(
    cuda: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nprintf '\\tpmi2\\n\\tnone\\n'\n")
    found = cuda.run(capsys)["by_name"]["pmi"]
    assert found["status"] == "broken"
    assert "every rank would run alone" in found["reason"]


@pytest.fixture
def efa(tmp_path: Path) -> Case:
    """An Open MPI program with NCCL and its plugin for EFA, and a host with EFA."""
    image, host = tmp_path / "image", tmp_path / "host"
    c_library(image, "2.36")
    verbs = library(image / LIB / "libibverbs.so.1", defines="IBVERBS_PRIVATE_34")
    efa = library(image / LIB / "libefa.so.1", needed=[verbs])
    library(image / LIB / "libibverbs/libefa-rdmav34.so")
    amazon = image / "opt/amazon/efa/lib64"
    fabric = library(amazon / "libfabric.so.1", needed=[efa, verbs], text="FI_EFA_IFACE")
    library(image / "opt/amazon/ofi-nccl/lib64/libnccl-net.so", needed=[fabric])
    library(image / LIB / "libnccl.so.2", text="NCCL version 2.27.7+cuda12.8")
    variables(image, LD_LIBRARY_PATH="/opt/amazon/efa/lib64:/opt/amazon/ofi-nccl/lib64")
    program(image, [mpi(image, "libmpi.so.40", needed=[fabric])])
    c_library(host, "2.36")
    nvidia(host, "570.86.15")
    devices(host, "infiniband/uverbs0", "infiniband/uverbs1")
    rdma(host, "efa")
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/sh\nprintf 'MPI plugin types are...\\n\\tpmix\\n'\n")
    return Case(image, host, site="p5")


def test_a_fitting_efa_image_is_ready(efa: Case, capsys: pytest.CaptureFixture[str]) -> None:
    report = efa.run(capsys)
    assert report["verdict"] == "ready", report["lines"]


def test_an_efa_image_without_the_library_of_its_device(
    efa: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """libfabric has the provider, and finds no device: the traffic takes tcp without a word."""
    (efa.image / LIB / "libibverbs/libefa-rdmav34.so").unlink()
    found = efa.run(capsys)["by_name"]["libfabric"]
    assert found["status"] == "slow"
    assert "has no libefa-rdmav" in found["reason"]


def test_a_plugin_that_the_image_names_is_found(
    cray: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    _plugin_that_must_be_named(cray)
    variables(cray.image, NCCL_NET_PLUGIN="ofi")
    assert cray.run(capsys)["verdict"] == "ready"


def test_what_an_injected_library_needs_comes_with_it(
    cray: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """HPE has libcxi in /usr/lib64, which no image could take whole."""
    (cray.host / "usr/lib64").mkdir()
    (cray.host / "opt/cray/pe/lib64/libcxi.so.1").rename(cray.host / "usr/lib64/libcxi.so.1")
    (cray.host / "var/spool/slurmd").mkdir(parents=True)
    report = cray.run(capsys)
    assert report["verdict"] == "ready", report["lines"]
    assert "--bind /usr/lib64/libcxi.so.1:/host/needed/libcxi.so.1:ro" in report["command"]
    assert "--bind /var/spool/slurmd:/var/spool/slurmd" in report["command"]
    assert ":/host/needed" in report["command"]


def test_the_newest_of_several_versions_is_injected(
    cray: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(
        cray.host / "opt/cray/libfabric/1.15.2.0", cray.host / "opt/cray/libfabric/1.9.1"
    )
    gnu = cray.host / "opt/cray/pe/mpich/default/ofi/gnu"
    shutil.copytree(gnu / "12.3", gnu / "9.1")
    (cray.host / "opt/cray/pe/mpich/default").rename(cray.host / "opt/cray/pe/mpich/8.1.30")
    shutil.copytree(cray.host / "opt/cray/pe/mpich/8.1.30", cray.host / "opt/cray/pe/mpich/8.1.9")
    report = cray.run(capsys)
    assert report["verdict"] == "ready", report["lines"]
    assert "/opt/cray/pe/mpich/8.1.30/ofi/gnu/12.3/lib-abi-mpich:/host/0" in report["command"]
    assert "/opt/cray/libfabric/1.15.2.0/lib64" in report["command"]


@pytest.mark.parametrize(
    ("inside", "host", "status"),
    [
        # By AMD's matrix: a driver goes across a major release, and not only by two minor ones.
        ("6.1.2", "5.7.1", "ready"),
        ("6.2.0", "5.7.1", "broken"),
        ("5.5.0", "5.7.1", "ready"),
        ("6.3.3", "7.2.1", "ready"),
        ("6.2.4", "7.2.1", "broken"),
        ("7.0.0", "6.2.4", "ready"),
        ("6.3.3", "9.0.0", "broken"),
    ],
)
def test_rocm_and_driver_by_the_matrix_of_amd(
    cray: Case, capsys: pytest.CaptureFixture[str], inside: str, host: str, status: str
) -> None:
    shutil.rmtree(cray.host / "opt/rocm-6.3.3")
    for root, version in ((cray.image, inside), (cray.host, host)):
        release = root / f"opt/rocm-{version}/.info/version"
        release.parent.mkdir(parents=True)
        release.write_text(f"{version}-1\n")
    found = cray.run(capsys)["by_name"]["gpu-driver"]
    assert found["status"] == status, found


def test_a_rocm_outside_opt_is_known_by_its_hip(
    cray: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    own = cray.image / LIB / "libmpi.so.12"
    program(cray.image, [own, library(cray.image / LIB / "libamdhip64.so.5")])
    found = cray.run(capsys)["by_name"]["gpu-driver"]
    assert found["status"] == "broken"
    assert "ROCm 5 in the image" in found["reason"]


def test_injection_of_the_other_family(cuda: Case, capsys: pytest.CaptureFixture[str]) -> None:
    library(cuda.host / "opt/mpich/lib/libmpi.so.12")
    cuda.inject = ["/opt/mpich/lib"]
    found = cuda.run(capsys)["by_name"]["mpi-abi"]
    assert found["status"] == "broken"
    assert "the host offers libmpi.so.12" in found["reason"]


def test_the_loader_takes_library_path_before_runpath_and_follows_origin(
    cuda: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = library(cuda.image / "opt/app/lib/libucp.so.0")
    own = library(
        cuda.image / "opt/app/libmpi.so.40", needed=[beside], runpath="$ORIGIN/lib:$ORIGIN"
    )
    environment = cuda.image / ".singularity.d/env/90-environment.sh"
    environment.parent.mkdir(parents=True)
    environment.write_text('export LD_LIBRARY_PATH="/opt/app"\n')
    program(cuda.image, [own])
    libraries = {lib["name"]: lib["path"] for lib in cuda.run(capsys)["libraries"]}
    assert libraries["libucp.so.0"] == "/opt/app/lib/libucp.so.0"
    library(cuda.image / "opt/first/libucp.so.0")
    environment.write_text('export LD_LIBRARY_PATH="/opt/app:/opt/first"\n')
    libraries = {lib["name"]: lib["path"] for lib in cuda.run(capsys)["libraries"]}
    assert libraries["libucp.so.0"] == "/opt/first/libucp.so.0"


def test_a_sif_is_judged_as_its_sandbox(cuda: Case, capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which("mksquashfs"):
        pytest.skip("no mksquashfs (squashfs-tools) here")
    sandbox = cuda.run(capsys)
    squashfs = cuda.image.with_suffix(".sqfs")
    command = ["mksquashfs", str(cuda.image), str(squashfs), "-quiet", "-no-progress"]
    subprocess.run(command, check=True)
    sif = cuda.image.with_suffix(".sif")
    sif.write_bytes(bytes(8192) + squashfs.read_bytes())  # a SIF's parts stand before it
    cuda.image = sif
    report = cuda.run(capsys)
    assert report["lines"] == sandbox["lines"]
    assert report["libraries"] == sandbox["libraries"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.sif", "--site", "local"], "there is no such file"),
        ([__file__, "--site", "local"], "no SIF with a squashfs"),
        (["/", "--site", "nowhere"], "nowhere"),
        (["/", "--site", "local", "--program", "/no/program"], "is not in the image"),
        (["/", "--site", "local", "--inject", "/no/lib"], "is no directory of the host"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["preflight", *words]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def test_a_script_is_no_program(cuda: Case, capsys: pytest.CaptureFixture[str]) -> None:
    (cuda.image / "usr/bin/app").write_text("#!/bin/sh\nexec real-app\n")
    words = ["preflight", str(cuda.image), "--site", cuda.site, "--host-root", str(cuda.host)]
    assert cli.main([*words, "--program", "/usr/bin/app"]) == 2
    assert "name the binary that a script starts" in capsys.readouterr().err


def test_the_system_directory_of_the_host_is_not_injected(
    cuda: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["preflight", str(cuda.image), "--site", cuda.site, "--host-root", str(cuda.host)]
    assert cli.main([*words, "--inject", f"/{LIB}"]) == 2
    assert "an image runs with its own alone" in capsys.readouterr().err


def test_an_srun_that_hangs_is_one_sentence(
    cuda: Case,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("busbar.preflight.host._TIMEOUT_S", 0.2)
    words = ["preflight", str(cuda.image), "--site", cuda.site, "--host-root", str(cuda.host)]
    assert cli.main(words) == 2
    assert "srun --mpi=list does not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("marker", "kind"), [("oci-layout", "oci-archive"), ("manifest.json", "docker-archive")]
)
def test_an_oci_archive_is_refused_with_the_command_that_converts_it(
    marker: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / marker).write_text("{}")
    archive = tmp_path / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / marker, marker)
    assert cli.main(["preflight", str(archive), "--site", "local"]) == 2
    assert f"apptainer build image.sif {kind}:{archive}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"), [("oci-layout", "is an OCI image"), ("notes.txt", "no root file system")]
)
def test_a_directory_that_is_no_sandbox(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "image"
    directory.mkdir()
    (directory / name).touch()
    assert cli.main(["preflight", str(directory), "--site", "local"]) == 2
    assert message in capsys.readouterr().err


def test_the_table_says_verdict_and_launch_line(cuda: Case) -> None:
    words = ["preflight", str(cuda.image), "--site", "h20-roce", "--host-root", str(cuda.host)]
    done = subprocess.run(
        [sys.executable, "-m", "busbar", *words, "--program", "/usr/bin/app"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: ready" in done.stdout
    assert "run: srun --nodes=2 --ntasks-per-node=8 --mpi=pmix apptainer exec --nv" in done.stdout
