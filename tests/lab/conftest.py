# SPDX-License-Identifier: MIT
"""A Slurm cluster on this machine, images built here, and sites that describe the cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.said import ran

from .common import LAB, ROOT, Run, build

APPTAINER = ROOT / "build" / "apptainer" / "bin"


def _cannot() -> str:
    """Why the lab cannot run here; empty where it can."""
    if os.geteuid() != 0:
        return "the lab needs root: namespaces with their own network"
    if os.environ.get("BUSBAR_LAB") not in ("1", "all"):
        # A test suite does not install programs on a machine unasked; .ci/run asks.
        return "BUSBAR_LAB=1 is not set: it lets the tests install Slurm and container tools"
    if not shutil.which("apt-get"):
        return "the lab installs Slurm and Apptainer by apt-get, which is not here"
    probe = ["unshare", "--net", "--pid", "--mount", "--fork", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        return "this machine allows no namespaces"
    return ""


@pytest.fixture(autouse=True)
def asked_for(request: pytest.FixtureRequest) -> None:
    """Skip what is of the lab tier, also if it needs nothing of the lab: it judges live rates."""
    if request.node.get_closest_marker("lab") and os.environ.get("BUSBAR_LAB") not in ("1", "all"):
        pytest.skip(_cannot())


@pytest.fixture(scope="session")
def installed() -> None:
    """Slurm and Apptainer, installed where they are not."""
    if reason := _cannot():
        pytest.skip(reason)
    # The other process of the lab begins at the same time.
    command = ["flock", "--close", LAB, LAB / "install.sh"]
    done = ran(*command)
    if done.returncode:
        # It was asked for: a skip here would hide every run of the lab.
        pytest.fail(f"ci/lab/install.sh could not install it: {done.stderr.strip()}")
    os.environ["PATH"] += f":{APPTAINER}"
    os.environ["CONTAINERS_CONF"] = str(LAB / "containers.conf")


@pytest.fixture(scope="session")
def dockerd(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Docker daemon of our own, which DOCKER_HOST names; containers need --network host."""
    directory = tmp_path_factory.mktemp("docker")
    subprocess.run([LAB / "dockerd", "up", directory], check=True)
    os.environ["DOCKER_HOST"] = f"unix://{directory}/docker.sock"
    yield
    del os.environ["DOCKER_HOST"]
    subprocess.run([LAB / "dockerd", "down", directory], check=True)


@pytest.fixture(scope="session")
def lab(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running cluster of four nodes."""
    directory = tmp_path_factory.mktemp("lab") / "cluster"
    ran(LAB / "up", directory, check=True)
    yield directory
    subprocess.run([LAB / "down", directory], check=True)


@pytest.fixture(scope="session")
def on_lab(lab: Path) -> Run:
    """Runs a command on the head of the cluster."""

    def run(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in (LAB / "run", lab, *words)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            # The nodes share the cores of this machine: a rank that waits must not keep one.
            env=os.environ | {"OMPI_MCA_mpi_yield_when_idle": "1"} | more,
        )

    return run


@pytest.fixture(scope="session")
def work(installed: None) -> Path:
    """Where images are built; the base stays there for the next session."""
    directory = ROOT / "build" / "images"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.fixture(scope="session")
def sif(work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host image as a SIF."""
    return build(work, OUTPUT=str(tmp_path_factory.mktemp("image") / "host.sif"))


@pytest.fixture(scope="session")
def without_cma(sif: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image without the transport that copies a message once."""
    image = tmp_path_factory.mktemp("without-cma") / "image"
    command = ["apptainer", "--quiet", "build", "--sandbox", str(image), str(sif)]
    subprocess.run(command, check=True, capture_output=True)
    for module in (image / "opt/busbar/libucx/lib/ucx").glob("libuct_cma*"):
        module.unlink()
    return image


@pytest.fixture(scope="session")
def mpich(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Prefixes of MPICH releases of one ABI."""
    found = {}
    for lock in Path(__file__).parent.glob("mpich-*.txt"):
        prefix = tmp_path_factory.mktemp(lock.stem)
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
        ]
        command += ["--ignore-installed", "--prefix", str(prefix), "-r", str(lock)]
        done = ran(*command)
        assert done.returncode == 0, done.stderr
        found[lock.stem.removeprefix("mpich-")] = prefix
    return found


class Built(dict[str, Path]):
    """The host image as an archive, by the name of its builder; built when it is asked for."""

    def __init__(self, work: Path, directory: Path) -> None:
        super().__init__()
        self.work, self.directory = work, directory

    def __missing__(self, name: str) -> Path:
        output = str(self.directory / f"{name}.tar")
        self[name] = build(self.work, FORMAT="oci", BUILDER=name, OUTPUT=output)
        return self[name]


@pytest.fixture(scope="session")
def oci(work: Path, dockerd: None, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The host image by one builder or another."""
    return Built(work, tmp_path_factory.mktemp("oci"))


SITE = """\
name: {name}
description: the lab's cluster
family: generic
scheduler: slurm
partitions:
  - {{name: lab, node_type: node, nodes: 2}}
node_types:
  node: {{cores: 4}}
deliveries:
  - {{kind: image, stack: host, mpi: {mpi}}}
containers: {{runtime: apptainer}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a site for the cluster whose images have an MPI of one family."""

    def write(mpi: str) -> Path:
        directory = tmp_path / "lab-site"
        directory.mkdir(exist_ok=True)
        (directory / "site.yaml").write_text(SITE.format(name="lab-site", mpi=mpi))
        return directory

    return write
