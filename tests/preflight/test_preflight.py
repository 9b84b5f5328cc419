# SPDX-License-Identifier: MIT
"""Preflight on images that are broken one line at a time, made of real ELF files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from trees import LIB, c_library, devices, fingerprint, library, mpi, nvidia, program

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
    devices(host, "kfd", "dri/renderD128", "cxi0", "cxi1")
    release = host / "opt/rocm-6.3.3/.info/version"
    release.parent.mkdir(parents=True)
    release.write_text("6.3.3-74\n")
    return Case(image, host)


@pytest.fixture
def cuda(tmp_path: Path) -> Case:
    """An Open MPI program with UCX and CUDA, and a host with GPUs and InfiniBand devices."""
    image, host = tmp_path / "image", tmp_path / "host"
    c_library(image, "2.36")
    verbs = library(image / LIB / "libibverbs.so.1")
    library(image / LIB / "libibverbs/libmlx5-rdmav34.so")
    library(image / LIB / "ucx/libuct_ib.so.0", needed=[verbs])
    library(image / LIB / "ucx/libuct_cuda.so.0")
    uct = library(image / LIB / "libuct.so.0")
    own = mpi(image, "libmpi.so.40", needed=[uct])
    program(image, [own, library(image / LIB / "libcudart.so.12")])
    c_library(host, "2.36")
    nvidia(host, "570.86.15")
    devices(host, "infiniband/uverbs0")
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
    release = case.image / "opt/rocm-7.0.0/.info/version"
    release.parent.mkdir(parents=True)
    release.write_text("7.0.0-1\n")


def _wrong_stack(case: Case) -> None:
    fingerprint(case.image, "host")


CRAY = [
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
    (_rocm_too_new, "gpu-driver", "broken", "ROCm 7.0.0"),
    (_wrong_stack, "fingerprint", "broken", "stack host"),
]


def _old_driver(case: Case) -> None:
    version = case.host / "proc/driver/nvidia/version"
    version.write_text(version.read_text().replace("570.86.15", "470.82.01"))


def _compat_first(case: Case) -> None:
    compat = case.image / "usr/local/cuda-12.4/compat"
    library(compat / "libcuda.so.550.54.14")
    library(compat / "libcuda.so.1")
    environment = case.image / ".singularity.d/env/10-docker2singularity.sh"
    environment.parent.mkdir(parents=True)
    environment.write_text(
        'export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-"/usr/local/cuda-12.4/compat"}"\n'
    )


def _no_driver(case: Case) -> None:
    shutil.rmtree(case.host / "proc")


def _no_driver_libraries(case: Case) -> None:
    (case.host / LIB / "libcuda.so.1").unlink()


def _ucx_without_cuda(case: Case) -> None:
    (case.image / LIB / "ucx/libuct_cuda.so.0").unlink()


def _ucx_without_verbs(case: Case) -> None:
    (case.image / LIB / "ucx/libuct_ib.so.0").unlink()


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


CUDA = [
    (_old_driver, "gpu-driver", "broken", "needs driver 525"),
    (_compat_first, "gpu-driver", "broken", "803"),
    (_no_driver, "gpu-driver", "broken", "no NVIDIA driver"),
    (_no_driver_libraries, "gpu-libraries", "broken", "libcuda.so.1"),
    (_ucx_without_cuda, "ucx-gpu", "broken", "libuct_cuda"),
    (_ucx_without_verbs, "ucx", "slow", "no libuct_ib"),
    (_no_ibverbs, "ucx", "slow", "libibverbs.so.1 is missing"),
    (_no_rdma_provider, "ucx", "slow", "no provider library"),
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


def test_a_pmi_that_nobody_speaks(
    cuda: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nprintf '\\tpmi2\\n\\tnone\\n'\n")
    found = cuda.run(capsys)["by_name"]["pmi"]
    assert found["status"] == "broken"
    assert "every rank would run alone" in found["reason"]


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
        (["nowhere.sif", "--site", "local"], "there is no such image"),
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
