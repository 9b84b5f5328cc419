# SPDX-License-Identifier: MIT
"""Every committed lock against its manifest, the pins and the sources; needs no Spack."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.spack import check, lock, manifest, modules

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "packages/spack_repo/busbar/packages"
MANIFESTS = manifest.find(ROOT / "site")


def name_of(item: manifest.Manifest) -> str:
    return item.path.parent.relative_to(ROOT / "site").as_posix()


@pytest.fixture(params=MANIFESTS, ids=name_of)
def committed(request: pytest.FixtureRequest) -> manifest.Manifest:
    item: manifest.Manifest = request.param
    return item


def test_the_lock_is_what_its_manifest_and_the_mission_ask_for(
    committed: manifest.Manifest,
) -> None:
    assert check.problems(committed) == []


def test_the_lock_was_made_with_the_pinned_spack(committed: manifest.Manifest) -> None:
    pins = (ROOT / "ci/spack/pins.env").read_text()
    assert f"SPACK_COMMIT={lock.load(committed.lock).spack_commit}" in pins


def test_no_path_of_a_machine_or_a_repository_is_in_the_lock(
    committed: manifest.Manifest,
) -> None:
    files = [f for s in committed.scopes for f in (s.glob("*.yaml") if s.is_dir() else [s])]
    written = "".join(file.read_text() for file in files)
    paths = set(re.findall(r'"(/[^"]*)"', committed.lock.read_text()))
    assert paths, "a lock without the prefix of its compiler"
    assert [path for path in sorted(paths) if path not in written] == []
    assert "file://" not in committed.lock.read_text()


def test_the_module_settings_are_those_of_the_family(committed: manifest.Manifest) -> None:
    path = modules.path(committed)
    if path not in committed.scopes:
        pytest.skip("an image sets its environment itself")
    assert path.read_text() == modules.text(committed), "run `busbar spack modules --write`"


def test_every_lane_that_a_site_delivers_by_spack_has_a_lock() -> None:
    for name in sites.names():
        for delivery in sites.load(name).deliveries:
            if delivery.kind != "spack":
                continue
            for lane in delivery.lanes:
                sub = lane if lane == "ucx-current" else ""
                assert (ROOT / "site" / name / sub / "spack.lock").is_file(), f"{name}, {lane}"


def test_a_lock_made_with_stand_ins_says_so() -> None:
    for name in {name_of(item).split("/", maxsplit=1)[0] for item in MANIFESTS} - {"local"}:
        made = [d.concretize_on_site for d in sites.load(name).deliveries if d.kind == "spack"]
        assert made == [True], f"site/{name}: the lock is for {check.OS}, which it is not"


def test_each_gpu_vendor_has_both_lanes() -> None:
    held = {
        (check.stack(item), scope.name)
        for item in MANIFESTS
        for scope in item.scopes
        if scope.parent.name == "lanes"
    }
    assert held >= {(s, x) for s in ("cuda", "rocm") for x in ("ucx-1.14", "ucx-current")}


def test_the_gpu_architecture_of_a_lock_is_that_of_its_site(
    committed: manifest.Manifest,
) -> None:
    site = sites.load(name_of(committed).split("/", maxsplit=1)[0])
    wanted = {node.gpus.arch.removeprefix("sm_") for node in site.node_types.values() if node.gpus}
    if not wanted:
        pytest.skip("a site without GPUs")
    built = {
        value
        for node in lock.load(committed.lock).nodes.values()
        if node.prefix is None
        for key in ("cuda_arch", "amdgpu_target")
        for value in node.parameters.get(key, ())
        if value not in ("none", "auto")
    }
    assert built == wanted


def test_the_recipe_of_gpu_aware_pins_the_program_as_it_is() -> None:
    recipe = (PACKAGES / "gpu_aware_mpi/package.py").read_text()
    pinned = dict(re.findall(r'"([\w.]+pp)": "([0-9a-f]{64})"', recipe))
    assert "gpu_aware.cpp" in pinned
    for name, found in pinned.items():
        source = ROOT / "reframe_checks/src" / name
        assert hashlib.sha256(source.read_bytes()).hexdigest() == found, "run `make spack-pin`"
        headers = re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE)
        assert set(headers) <= pinned.keys(), "run `make spack-pin`"


def test_every_recipe_is_in_the_table_of_reasons_and_pins_its_sources() -> None:
    table = (ROOT / "packages/README.md").read_text()
    for recipe in PACKAGES.glob("*/package.py"):
        assert f"`{recipe.parent.name.replace('_', '-')}`" in table
        versions = re.findall(r"^    version\((.*)\)$", recipe.read_text(), re.MULTILINE)
        for version in versions:
            if "has_code = False" not in recipe.read_text():
                assert re.search(r'sha256="[0-9a-f]{64}"|commit="[0-9a-f]{40}"', version), version


def test_the_host_manifest_of_the_repository_takes_the_machine_as_it_is() -> None:
    host = manifest.load(ROOT / "spack.yaml")
    assert not host.hides_machine
    assert set(host.specs) == set(manifest.load(ROOT / "site/local/spack.yaml").specs)
