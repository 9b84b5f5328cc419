# SPDX-License-Identifier: MIT
"""Images by the delivery spack, built for real from ci/images/small.

Runs where Spack and its recipes are: `make spack-setup` has run, or SPACK_ROOT is set. The stacks
of the sites need sources that are out of reach here: their files are rendered and linted.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.said import ran

from .common import ROOT, run_build
from .test_image_builds import Archive, in_image

pytestmark = pytest.mark.lab

SMALL = "ci/images/small"
CACHED = ("libbsd", "libmd")


def _run(*command: object, **more: str) -> None:
    """A command in the repository; fails with its whole output."""
    done = ran(*command, cwd=ROOT, env=os.environ | more)
    assert done.returncode == 0, done.stdout + done.stderr


def _push(directory: Path) -> None:
    """Builds two packages outside any image and pushes them, signed, into the supply."""
    scope, keys = directory / "scope", directory / "gpg"
    scope.mkdir()
    keys.mkdir(mode=0o700)
    supply = directory / "supply"
    (supply / "keys").mkdir()
    tree = f"{{root: {directory}/opt, padded_length: 128}}"
    mirror = f'{{url: "file://{supply}/sources", binary: false}}'
    (scope / "bootstrap.yaml").write_text("bootstrap: {'sources:': [], 'trusted:': {}}\n")
    (scope / "config.yaml").write_text(f"config: {{install_tree: {tree}}}\n")
    (scope / "mirrors.yaml").write_text(f"mirrors: {{sources: {mirror}}}\n")
    names = " ".join(CACHED)
    script = f"""set -e
        . .spack/env.sh
        export BUSBAR_SPACK_SCOPE={scope}
        spack -e {SMALL} install --only-concrete {names}
        spack -e {SMALL} gpg create tests tests@localhost
        spack -e {SMALL} buildcache push --signed --update-index file://{supply}/buildcache {names}
        spack -e {SMALL} gpg export {supply}/keys/tests.pub
    """
    _run("bash", "-c", script, SPACK_GNUPGHOME=str(keys))


@dataclass(frozen=True)
class Images:
    """The same inputs by two builders."""

    sif: Path
    log: str
    archive: Archive


@pytest.fixture(scope="module")
def images(installed: None, work: Path, tmp_path_factory: pytest.TempPathFactory) -> Images:
    """One SIF and one OCI image; Spack finds two packages in a cache and builds the others."""
    spack = ROOT / "ci" / "spack"
    if not ((ROOT / ".spack/env.sh").exists() or "SPACK_ROOT" in os.environ):
        pytest.skip("Spack not found: `make spack-setup` gets it")
    done = ran(spack / "setup.sh")
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    directory = tmp_path_factory.mktemp("spack")
    supply = directory / "supply"
    _run(spack / "supply.sh", SMALL, supply)
    _push(directory)
    wishes = {"DELIVERY": "spack", "ENVIRONMENT": SMALL, "SUPPLY": str(supply)}
    sif, tar = directory / "small.sif", directory / "small.tar"
    done = run_build(work, OUTPUT=str(sif), **wishes)
    run_build(work, FORMAT="oci", BUILDER="buildah", OUTPUT=str(tar), **wishes)
    return Images(sif, done.stdout + done.stderr, Archive.read(tar))


@pytest.mark.timeout(2700)  # it compiles rdma-core for two images
def test_binaries_come_from_the_cache_and_the_rest_from_sources(images: Images) -> None:
    extracted = set(re.findall(r"==> Extracting ([\w-]+?)-\d", images.log))
    built = set(re.findall(r"==> ([\w-]+): Executing phase: 'install'", images.log))
    assert extracted >= set(CACHED)
    assert not built & set(CACHED)
    assert built >= {"gpu-aware-mpi", "numactl", "rdma-core"}


def test_both_builders_give_the_same_fingerprint_and_files(images: Images) -> None:
    fingerprint = in_image(images.sif, "cat", "/opt/busbar/fingerprint.json")
    said = json.loads(fingerprint)
    locked = json.loads((ROOT / SMALL / "spack.lock").read_text())["concrete_specs"].values()
    versions = {node["name"]: node["version"] for node in locked}
    assert said["lane"] == "small"
    assert {"gpu-aware-mpi", "openmpi", "rdma-core"} <= set(said["packages"])
    assert said["packages"].items() <= versions.items()
    assert "cmake" not in said["packages"]
    listing = in_image(images.sif, "find", "/opt/busbar")
    assert set(listing.split()) == {
        name.rstrip("/") for name in images.archive.files if name.startswith("/opt")
    }
    sums = in_image(images.sif, "sh", "-c", "find /opt/busbar -type f -exec sha256sum {} +")
    for digest, _, name in (line.partition("  ") for line in sums.splitlines()):
        assert images.archive.files[name].endswith(digest), name


def test_only_what_runs_is_inside(images: Images) -> None:
    unwanted = r".*\.\(a\|h\|py\|pc\)\|.*/mpicc\|.*/\.spack.*\|.*/lib.san\.so.*"
    assert not in_image(images.sif, "find", "/opt/busbar", "-regex", unwanted)
    assert not in_image(images.sif, "find", "/opt/busbar", "-xtype", "l")
    assert not in_image(images.sif, "sh", "-c", "command -v g++ python3 spack; true")
    licenses = in_image(images.sif, "cat", "/opt/busbar/licenses/spack.txt")
    assert "numactl 2.0.16 LGPL-2.1-only" in licenses
