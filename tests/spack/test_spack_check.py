# SPDX-License-Identifier: MIT
"""A damaged lock or manifest is found, and named by what is wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbar.cli import main
from busbar.errors import BusbarError
from busbar.spack import check, lock, manifest
from busbar.spack.spec import unmet

ROOT = Path(__file__).resolve().parents[2]
Lock = dict[str, Any]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of a ROCm site, the stack with the most rules, and of what it includes."""
    for part in ("_families/spack", "mi300x"):
        shutil.copytree(ROOT / "site" / part, tmp_path / "site" / part)
    return tmp_path / "site/mi300x"


def node(data: Lock, name: str) -> dict[str, Any]:
    (found,) = [entry for entry in data["concrete_specs"].values() if entry["name"] == name]
    return found  # type: ignore[no-any-return]


def older_ucx(data: Lock) -> None:
    node(data, "ucx")["version"] = "1.14.0"


def ucx_without_rocm(data: Lock) -> None:
    node(data, "ucx")["parameters"]["rocm"] = False


def no_slurm(data: Lock) -> None:
    node(data, "openmpi")["parameters"]["schedulers"] = ["none"]


def root_dropped(data: Lock) -> None:
    data["roots"] = [root for root in data["roots"] if not root["spec"].startswith("ucc")]


def amdclang_everywhere(data: Lock) -> None:
    clang = node(data, "llvm-amdgpu")["hash"]
    for edge in node(data, "ucx")["dependencies"]:
        if "cxx" in edge["parameters"]["virtuals"]:
            edge.update(name="llvm-amdgpu", hash=clang)


def no_wrapper(data: Lock) -> None:
    tests = node(data, "rccl-tests")
    tests["dependencies"] = [e for e in tests["dependencies"] if e["name"] != "compiler-wrapper"]


def this_cpu(data: Lock) -> None:
    node(data, "ucx")["arch"]["target"] = "zen4"


def other_system(data: Lock) -> None:
    node(data, "ucx")["arch"]["platform_os"] = "rhel9"


def home_prefix(data: Lock) -> None:
    node(data, "hip")["external"]["path"] = "/home/someone/rocm"


def second_ucx(data: Lock) -> None:
    twin = {**node(data, "ucx"), "hash": "a" * 32}
    data["concrete_specs"]["a" * 32] = twin


def branch_of_rccl_tests(data: Lock) -> None:
    del node(data, "rccl-tests")["parameters"]["commit"]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (older_ucx, "ucx@1.14.0"),
        (ucx_without_rocm, "+rocm"),
        (no_slurm, "schedulers=slurm"),
        (root_dropped, "root ucc"),
        (amdclang_everywhere, "compiled by llvm-amdgpu"),
        (no_wrapper, "compiled without Spack's wrapper"),
        (this_cpu, "zen4"),
        (other_system, "rhel9"),
        (home_prefix, "/home/someone/rocm"),
        (second_ucx, "2 builds of ucx"),
        (branch_of_rccl_tests, "commit="),
    ],
)
def test_damage_is_found(copy: Path, damage: Callable[[Lock], None], named: str) -> None:
    data = json.loads((copy / "spack.lock").read_text())
    damage(data)
    (copy / "spack.lock").write_text(json.dumps(data))
    found = check.problems(manifest.load(copy / "spack.yaml"))
    assert any(named in sentence for sentence in found), found


def test_a_sound_copy_has_no_finding(copy: Path) -> None:
    assert check.problems(manifest.load(copy / "spack.yaml")) == []


def test_a_changed_scope_is_found(copy: Path) -> None:
    scope = copy.parent / "_families/spack/lanes/ucx-1.14/packages.yaml"
    scope.write_text(scope.read_text().replace("1.14.1", "1.15.0"))
    found = check.problems(manifest.load(copy / "spack.yaml"))
    assert [sentence for sentence in found if "does not meet '@1.15.0'" in sentence]


def test_configuration_of_the_machine_is_kept_out(copy: Path) -> None:
    path = copy / "spack.yaml"
    path.write_text(path.read_text().replace("include::", "include:"))
    assert "include::" in check.problems(manifest.load(path))[0]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("_families/spack/cluster", "_families/spack/gone", "_families/spack/gone"),
        ("- $rocm", "- $rocks", "$rocks"),
        ("spack:", "stack:", "has no `spack:`"),
        ("spack:", "spack: [", "invalid YAML"),
    ],
)
def test_a_wrong_manifest_is_named(copy: Path, old: str, new: str, named: str) -> None:
    path = copy / "spack.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BusbarError, match=r"spack\.yaml") as caught:
        check.problems(manifest.load(path))
    assert named in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"_meta": {"lockfile-version": 5}}'])
def test_a_wrong_lock_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "spack.lock").write_text(text)
    with pytest.raises(BusbarError, match=r"spack\.lock"):
        lock.load(tmp_path / "spack.lock")


def test_a_difference_is_told_by_package(copy: Path) -> None:
    old = lock.load(copy / "spack.lock")
    data = json.loads((copy / "spack.lock").read_text())
    changed = node(data, "ucx")
    key = changed["hash"]
    changed.update(version="1.14.0", hash="b" * 32)
    changed["parameters"]["dc"] = False
    text = json.dumps(data).replace(key, "b" * 32)
    (copy / "spack.lock").write_text(text)
    lines = lock.differences(old, lock.load(copy / "spack.lock"))
    assert lines == [
        f"ucx@1.14.1/{key[:7]} -> ucx@1.14.0/bbbbbbb: version 1.14.1 -> 1.14.0; dc=True -> False"
    ]


def test_order_is_no_difference(copy: Path) -> None:
    old = lock.load(copy / "spack.lock")
    data = json.loads((copy / "spack.lock").read_text())
    data["roots"].reverse()
    data["concrete_specs"] = dict(reversed(data["concrete_specs"].items()))
    (copy / "spack.lock").write_text(json.dumps(data, indent=1))
    assert lock.differences(old, lock.load(copy / "spack.lock")) == []


def test_the_command_tells_by_its_exit_status(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = ROOT / "site/mi300x/spack.lock", ROOT / "site/mi250x/spack.lock"
    assert main(["spack", "diff", str(mine), str(copy / "spack.lock")]) == 0
    assert "the same" in capsys.readouterr().out
    assert main(["spack", "diff", "--json", str(mine), str(other)]) == 1
    assert any("6.3.3 -> 5.4.3" in line for line in json.loads(capsys.readouterr().out))
    assert main(["spack", "diff", str(mine), str(copy / "none")]) == 2
    assert main(["spack", "check", "atlantis"]) == 2


def test_versions_match_as_in_spack() -> None:
    found = next(iter(lock.load(ROOT / "site/local/spack.lock").named("openmpi")))
    assert unmet(found, "openmpi@5.0 fabrics=ucx ~cuda") == []
    assert unmet(found, "@5.1 +cuda fabrics=ofi") == ["@5.1", "+cuda", "fabrics=ofi"]
    with pytest.raises(BusbarError, match="without Spack"):
        unmet(found, "openmpi ^ucx@1.14")
