# SPDX-License-Identifier: MIT
"""Preflight on images that fit, on odd ones, and on bad input."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from busbar import cli
from busbar.preflight.files import Directory
from busbar.preflight.host import rocm_release
from busbar.preflight.loader import View
from busbar.slurm.client import call
from tests.said import ran

from ..files import executable, written
from .cases import REAL_LIBRARIES, Case
from .trees import LIB, library, program, rocm, variables

pytestmark = REAL_LIBRARIES


def test_a_fitting_cray_image_is_ready(cray: Case) -> None:
    report = cray.ready()
    origins = {library["name"]: library["origin"] for library in report["libraries"]}
    assert origins["libmpi.so.12"] == "injected"
    assert origins["libfabric.so.1"] == "injected"
    assert origins["librccl.so.1"] == "image"
    assert "--mpi=cray_shasta" in report["command"]
    assert "lib-abi-mpich:/host/0:ro" in report["command"]
    assert "--env LD_PRELOAD=/host/1/libmpi_gtl_hsa.so.0" in report["command"]


def test_a_fitting_cuda_image_is_ready(cuda: Case) -> None:
    command = cuda.ready()["command"]
    assert "--nv" in command
    assert "--mpi=pmix" in command


def test_a_fitting_efa_image_is_ready(efa: Case) -> None:
    efa.ready()


def test_a_driver_in_a_directory_of_its_own(cuda: Case) -> None:
    """As on virtual machines: links from the loader's directories, and nothing in /proc."""
    own = cuda.host / "usr/local/nvidia/lib64"
    real = library(own / "libcuda.so.1")
    library(cuda.image / LIB / "ucx/libuct_cuda.so.0", needed=[real])
    real.rename(own / "libcuda.so.570.86.15")
    link = cuda.host / LIB / "libcuda.so.1"
    link.unlink()
    link.symlink_to("/usr/local/nvidia/lib64/libcuda.so.1")
    (own / "libcuda.so.1").symlink_to("libcuda.so.570.86.15")
    written(cuda.host / "sys/module/nvidia/version", "570.86.15\n")
    shutil.rmtree(cuda.host / "proc")
    cuda.ready()


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
SAYS = [("proc/driver/nvidia/version", OPEN), ("sys/module/nvidia/version", "570.86.15\n")]


@pytest.mark.parametrize(("file", "text"), SAYS)
def test_the_driver_is_read_wherever_it_says_its_version(cuda: Case, file: str, text: str) -> None:
    shutil.rmtree(cuda.host / "proc")
    written(cuda.host / file, text)
    found = cuda.run()["by_name"]["gpu-driver"]
    assert found["reason"].startswith("driver 570.86.15 runs CUDA 12")


def test_what_an_injected_library_needs_comes_with_it(cray: Case) -> None:
    """HPE has libcxi in /usr/lib64, which no image could take whole."""
    (cray.host / "usr/lib64").mkdir()
    (cray.host / "opt/cray/pe/lib64/libcxi.so.1").rename(cray.host / "usr/lib64/libcxi.so.1")
    (cray.host / "var/spool/slurmd").mkdir(parents=True)
    command = cray.ready()["command"]
    assert "--bind /usr/lib64/libcxi.so.1:/host/needed/libcxi.so.1:ro" in command
    assert "--bind /var/spool/slurmd:/var/spool/slurmd" in command
    assert ":/host/needed" in command


def test_the_newest_of_several_versions_is_injected(cray: Case) -> None:
    fabric, mpich = cray.host / "opt/cray/libfabric", cray.host / "opt/cray/pe/mpich"
    shutil.copytree(fabric / "1.15.2.0", fabric / "1.9.1")
    shutil.copytree(mpich / "default/ofi/gnu/12.3", mpich / "default/ofi/gnu/9.1")
    (mpich / "default").rename(mpich / "8.1.30")
    shutil.copytree(mpich / "8.1.30", mpich / "8.1.9")
    command = cray.ready()["command"]
    assert "/opt/cray/pe/mpich/8.1.30/ofi/gnu/12.3/lib-abi-mpich:/host/0" in command
    assert "/opt/cray/libfabric/1.15.2.0/lib64" in command


# By AMD's matrix: a driver goes across a major release, and not only by two minor ones.
MATRIX = [
    ("6.1.2", "5.7.1", "ready"),
    ("6.2.0", "5.7.1", "broken"),
    ("5.5.0", "5.7.1", "ready"),
    ("6.3.3", "7.2.1", "ready"),
    ("6.2.4", "7.2.1", "broken"),
    ("7.0.0", "6.2.4", "ready"),
    ("7.14.0", "7.0.2", "ready"),
    ("7.14.0", "6.4.1", "broken"),
    ("10.0.0", "10.0.0", "ready"),
    ("6.3.3", "9.0.0", "broken"),
]


def test_the_newest_rocm_is_found_in_both_layouts(tmp_path: Path) -> None:
    rocm(tmp_path, "7.2.3")
    assert rocm_release(View.of(Directory(tmp_path))) == (7, 2, 3)
    version = tmp_path / "opt/rocm/core-10.0/.info/version"
    version.parent.mkdir(parents=True)
    version.write_text("10.0.0\n")
    assert rocm_release(View.of(Directory(tmp_path))) == (10, 0, 0)


def test_rocm_and_driver_by_the_matrix_of_amd(cray: Case) -> None:
    found = []
    for inside, host, _ in MATRIX:
        for root, version in ((cray.image, inside), (cray.host, host)):
            for release in root.glob("opt/rocm-*"):
                shutil.rmtree(release)
            rocm(root, version)
        found.append((inside, host, cray.run()["by_name"]["gpu-driver"]["status"]))
    assert found == MATRIX


def test_injection_of_the_other_family(cuda: Case) -> None:
    library(cuda.host / "opt/mpich/lib/libmpi.so.12")
    words = ("--inject", "/opt/mpich/lib")
    cuda.finds("mpi-abi", "broken", "the host has libmpi.so.12", *words)


def test_the_loader_takes_library_path_before_runpath_and_follows_origin(cuda: Case) -> None:
    app = cuda.image / "opt/app"
    beside = library(app / "lib/libucp.so.0")
    own = library(app / "libmpi.so.40", needed=[beside], runpath="$ORIGIN/lib:$ORIGIN")
    program(cuda.image, [own])
    for path, found in (
        ("/opt/app", "/opt/app/lib/libucp.so.0"),
        ("/opt/app:/opt/first", "/opt/first/libucp.so.0"),
    ):
        variables(cuda.image, LD_LIBRARY_PATH=path)
        libraries = {lib["name"]: lib["path"] for lib in cuda.run()["libraries"]}
        assert libraries["libucp.so.0"] == found
        library(cuda.image / "opt/first/libucp.so.0")


@pytest.mark.parametrize(
    ("built", "loaded", "told"), [("1.20.1", "1.14.1", True), ("1.20.1", "1.22.0", False)]
)
def test_an_older_ucx_than_mpi_was_built_with_is_named(
    cuda: Case, built: str, loaded: str, told: bool
) -> None:
    """As with the wheels of Open MPI, which bring their UCX, and LD_LIBRARY_PATH to another."""
    app = cuda.image / "opt/app"
    beside = library(app / "openmpi/libucp.so.0", text=built)
    own = library(app / "libmpi.so.40", needed=[beside], runpath="$ORIGIN:$ORIGIN/openmpi")
    library(cuda.image / "opt/ucx/libucp.so.0", text=loaded)
    program(cuda.image, [own])
    variables(cuda.image, LD_LIBRARY_PATH="/opt/app:/opt/ucx")
    lines = cuda.run()["by_name"]
    assert ("mpi-ucx" in lines) is told
    if told:
        assert (
            "built with UCX 1.20.1, but /opt/ucx/libucp.so.0 is 1.14.1"
            in (lines["mpi-ucx"]["reason"])
        )
        assert "of that release or newer" in lines["mpi-ucx"]["remedy"]
    assert ("mpi-get" in lines) is told
    variables(cuda.image, OMPI_MCA_osc="rdma,sm")
    assert "mpi-get" not in cuda.run()["by_name"]


def test_a_sif_is_judged_as_its_sandbox(cuda: Case) -> None:
    if not shutil.which("mksquashfs"):
        pytest.skip("no mksquashfs (squashfs-tools) here")
    sandbox = cuda.run()
    squashfs = cuda.image.with_suffix(".sqfs")
    command = ["mksquashfs", str(cuda.image), str(squashfs), "-quiet", "-no-progress"]
    subprocess.run(command, check=True)
    cuda.image = cuda.image.with_suffix(".sif")
    cuda.image.write_bytes(bytes(8192) + squashfs.read_bytes())  # a SIF's parts stand before it
    report = cuda.run()
    assert report["lines"] == sandbox["lines"]
    assert report["libraries"] == sandbox["libraries"]


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local = ("--site", "local")
    (tmp_path / "oci-layout").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("shopping list\n")
    notes = str(tmp_path / "other/notes.txt")
    rows = [
        (["nowhere.sif", *local], "no such file"),
        ([notes, *local], f"apptainer build image.sif oci-archive:{notes}"),
        (["/", "--site", "nowhere"], "nowhere"),
        (["/", *local, "--program", "/no/program"], "not in the image"),
        (["/", *local, "--inject", "/no/lib"], "not a directory on the host"),
        ([str(tmp_path), *local], "is an OCI image"),
        ([str(tmp_path / "other"), *local], "not a root file system"),
    ]
    for words, message in rows:
        assert cli.main(["preflight", *words]) == 2
        errors = capsys.readouterr().err
        assert message in errors
        assert errors.count("\n") == 1


def test_a_host_or_program_that_does_not_do_is_told(
    cuda: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busbar.slurm.steps.call", partial(call, seconds=0.2))

    def error(*words: str) -> str:
        assert cli.main(cuda.words(*words)) == 2
        return cuda.capsys.readouterr().err

    assert "an image must use its own C library" in error("--inject", f"/{LIB}")
    app = executable(cuda.image / "usr/bin/app", "exec real-app")
    assert "pass the binary that a script starts" in error()
    app.write_bytes((cuda.image / LIB / "libmpi.so.40").read_bytes())
    executable(cuda.root / "bin/srun", "exec sleep 60")
    assert "srun: does not answer within 0.2 s; run busbar" in error()


def test_the_table_says_verdict_and_launch_line(cuda: Case) -> None:
    command = [sys.executable, "-m", "busbar", *cuda.words()]
    done = ran(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ready: ")
    assert "next: srun --nodes=2 --ntasks-per-node=8 --mpi=pmix --kill-on-bad" in done.stdout


NCCL = "usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib/libnccl.so.2"


def _pytorch(case: Case) -> None:
    """The same image as users of PyTorch have it: NCCL of a Python package, no MPI, no UCX."""
    shutil.rmtree(case.image / "opt")
    shutil.rmtree(case.image / LIB / "ucx")
    for pattern in ("libmpi*", "libuct*"):
        for path in (case.image / LIB).glob(pattern):
            path.unlink()
    library(case.image / NCCL, text="NCCL version 2.27.7+cuda12.8")
    program(case.image, [library(case.image / LIB / "libpython3.12.so.1.0")])


def test_nccl_without_mpi_is_asked_for_verbs_alone(cuda: Case) -> None:
    _pytorch(cuda)
    report = cuda.ready()
    assert "torchrun" in report["by_name"]["mpi"]["reason"]
    assert "libibverbs.so.1" in report["by_name"]["nccl-verbs"]["reason"]
    assert not {"mpi-abi", "pmi", "ucx", "ucx-gpu", "shared-memory"} & report["by_name"].keys()
    command = report["command"]
    assert "--ntasks-per-node=1 --mpi=none --kill-on-bad-exit=1 apptainer exec --nv" in command
    (cuda.image / LIB / "libibverbs/libmlx5-rdmav34.so").unlink()
    cuda.finds("nccl-verbs", "slow", "has no libmlx5-rdmav*.so next to it: NCCL sees no device")
    (cuda.image / LIB / "libibverbs.so.1").unlink()
    cuda.finds("nccl-verbs", "slow", "NCCL finds no libibverbs.so.1")
    library(cuda.image / "opt/rdma/libibverbs.so.1")
    library(cuda.image / NCCL, text="NCCL version 2.27.7+cuda12.8", runpath="/opt/rdma")
    cuda.finds("nccl-verbs", "slow", "/opt/rdma/libibverbs.so.1 (image) has no libmlx5-rdmav")


def test_nccl_is_known_by_its_link(efa: Case) -> None:
    """Packages install libnccl.so.2 as a link to a name with the whole version."""
    link = efa.image / LIB / "libnccl.so.2"
    link.rename(link.with_name("libnccl.so.2.27.7"))
    link.symlink_to("libnccl.so.2.27.7")
    (efa.image / "opt/amazon/ofi-nccl/lib64/libnccl-net.so").unlink()
    efa.finds("net-plugin", "slow", "no libnccl-net.so: NCCL uses sockets instead of efa")
