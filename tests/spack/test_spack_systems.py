# SPDX-License-Identifier: MIT
"""The environment of a machine by its operating system, and whether it can install the lock."""

from __future__ import annotations

import json
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbar import site as sites, spack as lock
from busbar.cli import main
from busbar.errors import BusbarError
from busbar.site import systems
from busbar.site.stacks import environment_directory, find_environment
from ci.spack import manifest

from ..files import written

ROOT = Path(__file__).resolve().parents[2]
Release = Callable[[str], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Release:
    """Set the operating system of this machine: the id and version of its os-release."""

    def set_to(text: str) -> None:
        name, _, version = text.partition(" ")
        release = {"ID": name} | ({"VERSION_ID": version} if version else {})
        monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)

    return set_to


@pytest.mark.parametrize(
    ("release", "name", "locked"),
    [
        ("debian 12", "debian12", "debian12"),
        ("ubuntu 24.04", "ubuntu24.04", "ubuntu24.04"),
        ("sles 15.6", "sles15", "sles15"),
        ("rhel 9.6", "rhel9", "rhel9"),
        ("rocky 9.5", "rocky9", "rhel9"),
        ("ol 9.4", "oracle9", "rhel9"),
        ("rhel 8.10", "rhel8", "rhel8"),
        ("arch", "arch", "arch"),
    ],
)
def test_systems_have_the_names_of_spack(
    machine: Release, release: str, name: str, locked: str
) -> None:
    machine(release)
    assert systems.of_machine() == name
    assert systems.locked(name) == locked


def test_a_machine_without_os_release_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, str]:
        raise OSError

    monkeypatch.setattr(platform, "freedesktop_os_release", missing)
    assert systems.of_machine() == ""


def test_each_scope_accepts_its_own_system_and_has_a_c_library() -> None:
    scopes = sorted(systems.SCOPES.iterdir())
    assert len(scopes) == 10
    for scope in scopes:
        assert scope.name in systems.accepted(scope)
        assert f"this environment is for {scope.name};" in (scope / "include.yaml").read_text()
        release = (scope / "os-release").read_text()
        assert re.search(r"^GLIBC=2\.\d\d$", release, re.MULTILINE)


@pytest.mark.parametrize(
    ("release", "site", "directory"),
    [
        ("debian 12", "dgx-h100", "cuda-sm_90"),  # that of the machine before that of the site
        ("ubuntu 22.04", "dgx-h100", "cuda-sm_90-ubuntu22.04"),
        ("rocky 9.5", "dgx-h100", "cuda-sm_90-rhel9"),
        ("fedora 41", "dgx-h100", "cuda-sm_90-ubuntu22.04"),  # that of the site
        ("fedora 41", "local", "host"),  # of a site without a system
        ("sles 15.6", "mi250x-cray", "cray-gfx90a-sles15"),
    ],
)
def test_the_environment_is_that_of_the_machine(
    machine: Release, release: str, site: str, directory: str
) -> None:
    machine(release)
    found, _, _ = find_environment(sites.load(site))
    assert found.name == directory


def test_an_image_has_the_environment_of_its_base(machine: Release) -> None:
    machine("ubuntu 22.04")
    site = sites.load("dgx-h100")
    for lane, name in (("ucx-1.14", "cuda-sm_90"), ("ucx-current", "cuda-sm_90/ucx-current")):
        found, _, _ = find_environment(site, lane, "image")
        assert found.as_posix().endswith(f"_stacks/{name}")
    (own,) = (each for each in sites.load("mi250x-cray").deliveries if each.kind == "image")
    directory = environment_directory(sites.load("mi250x-cray"), own, "cray-mpich", "sles15")
    assert directory
    assert directory.name == "cray-abi-gfx90a"


def host_lock(directory: Path, change: Callable[[dict[str, Any]], None]) -> lock.Lock:
    data = json.loads((ROOT / "site/_stacks/host/spack.lock").read_text())
    for node in data["concrete_specs"].values():
        if node.get("external"):
            change(node)
    path = directory / "spack.lock"
    path.write_text(json.dumps(data))
    return lock.load(path)


def test_a_lock_is_installed_only_on_its_system_with_its_externals(
    machine: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(node: dict[str, Any]) -> None:
        node["external"]["path"] = str(tmp_path)
        for language in (node["external"]["extra_attributes"] or {}).get("compilers", {}):
            node["external"]["extra_attributes"]["compilers"][language] = str(tmp_path)

    def no_fortran(node: dict[str, Any]) -> None:
        here(node)
        if node["name"] == "gcc":
            node["external"]["extra_attributes"]["compilers"]["fortran"] = "/nowhere/gfortran"

    machine("debian 12")
    lock.require_installable(host_lock(tmp_path, here), "local")
    with pytest.raises(BusbarError, match=r"needs gcc@12\.2\.0 \(/nowhere/gfortran\)"):
        lock.require_installable(host_lock(tmp_path, no_fortran), "local")
    machine("ubuntu 24.04")
    with pytest.raises(BusbarError, match=r"is for debian12, but this machine is ubuntu24\.04"):
        lock.require_installable(host_lock(tmp_path, here), "local")
    machine("debian 12")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(BusbarError, match="is for x86_64_v3, but this machine is aarch64"):
        lock.require_installable(host_lock(tmp_path, here), "local")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    arm = lock.load(ROOT / "site/_stacks/cray-sm_90-neoverse_v2/spack.lock")
    with pytest.raises(BusbarError, match="is for neoverse_v2, but this machine is x86_64"):
        lock.require_installable(arm, "gh200x4-slingshot")


@pytest.fixture
def copy(tmp_path: Path) -> sites.Site:
    """A site of a directory of its own, and the environments beside it."""
    for part in ("_stacks/host", "_families/spack"):
        skipped = shutil.ignore_patterns(".spack-env")
        shutil.copytree(ROOT / "site" / part, tmp_path / "site" / part, ignore=skipped)
    for part in ("_stacks/stacks.yaml", "local/site.yaml"):
        written(tmp_path / "site" / part, (ROOT / "site" / part).read_text())
    return sites.load(str(tmp_path / "site/local"))


@pytest.mark.parametrize("lane", ["", "ucx-current"])
def test_a_machine_concretizes_in_the_directory_of_the_site(
    machine: Release, copy: sites.Site, lane: str
) -> None:
    assert copy.directory
    assert not copy.directory.is_relative_to(ROOT)
    stacks = copy.directory.with_name("_stacks")
    before = {path: path.read_bytes() for path in stacks.rglob("*") if path.is_file()}
    base = stacks / "host" / lane
    for release, name, system in (
        ("debian 12", "host", "debian12"),
        ("rocky 9.5", "host-rhel9", "rhel9"),
        ("fedora 41", "host-fedora41", ""),
    ):
        machine(release)
        own = lock.own_environment(copy, base)
        assert own == copy.directory / "spack" / name / lane
        found = manifest.load(own / "spack.yaml")
        assert (found.system.name if found.system else "") == system
        assert found.files.keys() > {
            copy.directory.with_name("_families") / "spack/host/packages.yaml"
        }
        assert lock.own_environment(copy, own) == own
        found_again, _, _ = find_environment(copy, lane or None)
        assert found_again == own
    (own / "spack.yaml").write_text((own / "spack.yaml").read_text() + "# mine\n")
    assert "# mine" in (lock.own_environment(copy, base) / "spack.yaml").read_text()
    changed = [path for path, text in before.items() if path.read_bytes() != text]
    assert changed == []


def test_a_system_without_an_environment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "spack", "dgx-h100", "--system", "plan9"]) == 2
    output = capsys.readouterr()
    assert not output.out
    assert "no environment 'cuda-sm_90-plan9'" in output.err


def test_the_path_of_a_system_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["site", "spack", "dgx-h100", "--system", "rocky9", "--lane", "ucx-current"]
    assert main(command) == 0
    assert capsys.readouterr().out == "site/_stacks/cuda-sm_90-rhel9/ucx-current\n"


def test_an_environment_without_a_lock_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "_stacks").mkdir()
    shutil.copytree(ROOT / "site/h200x4", tmp_path / "h200x4")
    shutil.copy(ROOT / "site/_stacks/stacks.yaml", tmp_path / "_stacks")
    site = str(tmp_path / "h200x4")
    lane = ["--lane", "ucx-current"]
    assert main(["site", "spack", site, *lane, "--system", "ubuntu22.04"]) == 0
    output = capsys.readouterr()
    name = "cuda-sm_90-local-ubuntu22.04/ucx-current"
    assert output.out == f"{tmp_path}/_stacks/{name}\n"
    derived = f"make spack derives it, or make spack-lock ENVS={name}\n"
    assert output.err == f"busbar site spack: no lock for ubuntu22.04 is committed; {derived}"
    # What concretize leaves behind if Spack finds no solution.
    own = tmp_path / "h200x4/spack/cuda-sm_90-local/spack.yaml"
    written(own, "spack: {}\n")
    assert main(["site", "spack", site, "--system", "debian12"]) == 0
    solved = f"run make spack-concretize SITE={site}\n"
    assert capsys.readouterr().err == f"busbar site spack: no lock found; {solved}"
    (own.parent / "spack.lock").touch()
    assert main(["site", "spack", site, "--system", "debian12"]) == 0
    assert not capsys.readouterr().err
