# SPDX-License-Identifier: MIT
"""Preflight on images that fit, on odd ones, and on bad input."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest

from busbar import cli
from busbar.slurm.client import call

from .cases import REAL_LIBRARIES, Case
from .trees import (
    LIB,
    library,
    program,
)

pytestmark = REAL_LIBRARIES


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
    assert "each rank would run as its own MPI job" in found["reason"]


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
    assert "the host has libmpi.so.12" in found["reason"]


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
        (["nowhere.sif", "--site", "local"], "no such file"),
        ([__file__, "--site", "local"], "not a SIF with a squashfs"),
        (["/", "--site", "nowhere"], "nowhere"),
        (["/", "--site", "local", "--program", "/no/program"], "not in the image"),
        (["/", "--site", "local", "--inject", "/no/lib"], "not a directory on the host"),
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
    assert "give the binary that a script starts" in capsys.readouterr().err


def test_the_system_directory_of_the_host_is_not_injected(
    cuda: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["preflight", str(cuda.image), "--site", cuda.site, "--host-root", str(cuda.host)]
    assert cli.main([*words, "--inject", f"/{LIB}"]) == 2
    assert "an image must use its own C library" in capsys.readouterr().err


def test_an_srun_that_hangs_is_one_sentence(
    cuda: Case,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("busbar.slurm.steps.call", partial(call, seconds=0.2))
    words = ["preflight", str(cuda.image), "--site", cuda.site, "--host-root", str(cuda.host)]
    assert cli.main(words) == 2
    assert "srun: does not answer within 0.2 s; run busbar" in capsys.readouterr().err


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
    ("name", "message"),
    [("oci-layout", "is an OCI image"), ("notes.txt", "not a root file system")],
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
