# SPDX-License-Identifier: MIT
"""A damaged lock, manifest or input is found, and named by what is wrong with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from busbar import spack as lock
from busbar.errors import BusbarError
from ci.spack import check, inputs, locks, manifest
from ci.spack.check import unmet

ROOT = Path(__file__).resolve().parents[2]
STACK = "site/_stacks/rocm-gfx942"
Lock = dict[str, Any]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of a ROCm stack, the one with the most rules, and of all that determined its lock."""
    for part in (STACK, "site/_families/spack", "packages", "reframe_checks/src", "ci/spack"):
        shutil.copytree(ROOT / part, tmp_path / part)
    return tmp_path / STACK


def problems(directory: Path) -> tuple[str, ...]:
    return check.judge(manifest.load(directory / "spack.yaml")).problems


def node(data: Lock, name: str) -> dict[str, Any]:
    (found,) = [entry for entry in data["concrete_specs"].values() if entry["name"] == name]
    return found  # type: ignore[no-any-return]


def set_in(package: str, *path: str, to: Any) -> Callable[[Lock], None]:
    """Change one value of a package."""

    def change(data: Lock) -> None:
        *above, last = path
        place = node(data, package)
        for key in above:
            place = place[key]
        place[last] = to

    return change


def root_dropped(data: Lock) -> None:
    data["roots"] = [root for root in data["roots"] if not root["spec"].startswith("ucc")]


def root_renamed(data: Lock) -> None:
    root = next(root for root in data["roots"] if root["spec"].startswith("ucx"))
    root["spec"] = root["spec"].replace("ucx", "ucx2")


def amdclang_everywhere(data: Lock) -> None:
    clang = node(data, "llvm-amdgpu")["hash"]
    for edge in node(data, "ucx")["dependencies"]:
        if "cxx" in edge["parameters"]["virtuals"]:
            edge.update(name="llvm-amdgpu", hash=clang)


def no_wrapper(data: Lock) -> None:
    tests = node(data, "rccl-tests")
    tests["dependencies"] = [e for e in tests["dependencies"] if e["name"] != "compiler-wrapper"]


def second_ucx(data: Lock) -> None:
    data["concrete_specs"]["a" * 32] = {**node(data, "ucx"), "hash": "a" * 32}


def branch_of_rccl_tests(data: Lock) -> None:
    del node(data, "rccl-tests")["parameters"]["commit"]


home_prefix = set_in("hip", "external", "path", to="/home/someone/rocm")
PINNED: list[tuple[Callable[[Lock], None], str]] = [
    (set_in("ucx", "version", to="1.14.0"), "ucx@1.14.0"),
    (set_in("ucx", "parameters", "rocm", to=False), "+rocm"),
    (set_in("openmpi", "parameters", "schedulers", to=["none"]), "schedulers=slurm"),
    (root_dropped, "root ucc"),
    (branch_of_rccl_tests, "commit="),
]
DAMAGE = [
    *PINNED,
    (amdclang_everywhere, "compiled by llvm-amdgpu"),
    (no_wrapper, "compiled without Spack's wrapper"),
    (set_in("ucx", "arch", "target", to="zen4"), "zen4"),
    (set_in("ucx", "arch", "platform_os", to="rhel9"), "rhel9"),
    (home_prefix, "/home/someone/rocm"),
    (second_ucx, "2 builds of ucx"),
    (set_in("hip", "version", to="6.4.0"), "hip@6.4.0"),
    (root_renamed, "ucx2 %["),
    (set_in("ucx", "namespace", to="builtin"), "from the recipes builtin, not from busbar"),
    (
        set_in("ucc", "parameters", "amdgpu_target", to=["gfx90a"]),
        "amdgpu_target=['gfx90a'], not amdgpu_target=gfx942",
    ),
]


@contextmanager
def written(path: Path, text: str) -> Iterator[None]:
    """Change a file for a while."""
    before = path.read_text() if path.exists() else None
    path.write_text(text)
    yield
    if before is None:
        path.unlink()
    else:
        path.write_text(before)


def test_damage_is_found(copy: Path) -> None:
    path, missed = copy / "spack.lock", {}
    whole = path.read_text()
    for damage, named in DAMAGE:
        data = json.loads(whole)
        damage(data)
        path.write_text(json.dumps(data))
        found = problems(copy)
        if not any(named in sentence for sentence in found):
            missed[named] = found
    assert missed == {}


def test_a_sound_copy_has_no_finding(copy: Path) -> None:
    assert check.judge(manifest.load(copy / "spack.yaml")) == check.LockVerdict((), made_for="")


SCOPES = "site/_families/spack"
RECIPES = "packages/spack_repo/busbar/packages"


INPUTS = [
    (f"{RECIPES}/osu_micro_benchmarks/package.py", '"--enable-rocm"', '"--enable-rocr"'),
    (f"{RECIPES}/ucx/package.py", "1.22.0", "1.22.1"),
    ("reframe_checks/src/gpu_aware.cpp", "#include", "// x\n#include"),
    ("reframe_checks/src/support.hpp", "#include", "// x\n#include"),
    (f"{SCOPES}/gpus/gfx942/packages.yaml", "gfx942", "gfx950"),
    (f"{SCOPES}/common/packages.yaml", "x86_64_v3", "x86_64_v4"),
    (f"{SCOPES}/common/packages.yaml", "7.5.2", "7.4"),
    (f"{SCOPES}/cluster/packages.yaml", "23-11-1-1", "24-05-0-0"),
    (f"{SCOPES}/rocm-6.3.3/packages.yaml", "hip@6.3.3", "hip@6.3.4"),
    (f"{SCOPES}/common/repos.yaml", "119680aeee", "229680aeee"),
    (f"{SCOPES}/common/concretizer.yaml", "unify: true", "unify: false"),
    (f"{SCOPES}/common/toolchains.yaml", "%c=gcc", "%c=cce"),
    (f"{SCOPES}/systems/debian12/packages.yaml", "gcc@12.2.0", "gcc@12.3.0"),
    (f"{SCOPES}/systems/debian12/os-release", "GLIBC=2.36", "GLIBC=2.37"),
    (f"{SCOPES}/rocm/definitions.yaml", "  - hwloc %system-gcc\n", ""),
    (f"{STACK}/spack.yaml", "view: true", "view: true\n  packages: {pmix: {prefer: ['@5']}}"),
    ("ci/spack/pins.env", "19dabef469", "29dabef469"),
]


def test_every_change_of_an_input_is_found(copy: Path) -> None:
    missed = []
    for name, old, new in INPUTS:
        path = copy.parents[2] / name
        text = path.read_text()
        assert old in text
        with written(path, text.replace(old, new)):
            if not any(s.startswith(f"{name} has changed") for s in problems(copy)):
                missed.append((name, old))
    assert missed == []


def test_the_order_of_repositories_is_an_input(copy: Path) -> None:
    path = copy.parents[2] / SCOPES / "common/repos.yaml"
    line = "  busbar: ../../../../packages/spack_repo/busbar\n"
    path.write_text(path.read_text().replace(line, "") + line)
    assert any("common/repos.yaml has changed" in sentence for sentence in problems(copy))


def test_what_a_scope_includes_is_an_input(copy: Path) -> None:
    scopes = copy.parents[2] / SCOPES
    (scopes / "common/include.yaml").write_text("include: [../extra]\n")
    (scopes / "extra").mkdir()
    (scopes / "extra/packages.yaml").write_text("packages: {hwloc: {require: [+cairo]}}\n")
    found = problems(copy)
    assert any("extra/packages.yaml has changed" in sentence for sentence in found)
    assert any("does not meet '+cairo'" in sentence for sentence in found)


def test_a_linked_file_is_the_same_input(copy: Path, tmp_path: Path) -> None:
    scope = copy.parents[2] / SCOPES / "cluster/packages.yaml"
    scope.rename(tmp_path / "elsewhere.yaml")
    scope.symlink_to(tmp_path / "elsewhere.yaml")
    assert problems(copy) == ()


def test_a_new_file_of_a_scope_or_recipe_is_found(copy: Path) -> None:
    root = copy.parents[2]
    (root / SCOPES / "cluster/concretizer.yaml").write_text("concretizer: {unify: false}\n")
    (root / RECIPES / "pmix").mkdir()
    (root / RECIPES / "pmix/package.py").write_text("# ours\n")
    (root / RECIPES / "ucx/patches").mkdir()
    (root / RECIPES / "ucx/patches/fix.patch").write_text("--- a\n")
    (root / RECIPES / "ucx/package.py~").write_text("# an editor's copy\n")
    found = [sentence for sentence in problems(copy) if "has changed" in sentence]
    assert len(found) == 3, found


def test_what_no_solve_reads_is_no_change(copy: Path) -> None:
    root = copy.parents[2]
    for name in ("common/modules.yaml", "common/packages.yaml"):
        path = root / SCOPES / name
        path.write_text(path.read_text().replace("hash_length: 7", "hash_length: 9") + "# x\n")
    (root / "reframe_checks/src/memory.cpp").write_text("int main() {}\n")
    assert problems(copy) == ()


def test_a_changed_requirement_is_named_by_its_package(copy: Path) -> None:
    scope = copy.parents[1] / "_families/spack/lanes/ucx-1.14/packages.yaml"
    scope.write_text(scope.read_text().replace("1.14.1", "1.15.0"))
    assert [sentence for sentence in problems(copy) if "does not meet '@1.15.0'" in sentence]


def concretized_again(data: Lock) -> None:
    """What Spack does on another system: its compiler and hashes differ in every package."""
    renamed: dict[str, str] = {}
    nodes = data["concrete_specs"]

    def rehash(key: str) -> str:
        if key not in renamed:
            entry = nodes[key]
            entry["arch"]["platform_os"] = "sles15"
            if "external" not in entry:
                entry["arch"]["target"] = "zen3"
            for edge in entry.get("dependencies", ()):
                edge["hash"] = rehash(edge["hash"])
            entry["hash"] = renamed[key] = check.hash_of(entry)
        return renamed[key]

    data["concrete_specs"] = {rehash(key): nodes[key] for key in nodes}
    for root in data["roots"]:
        root["hash"] = renamed[root["hash"]]


def rewrite(directory: Path, *changes: Callable[[Lock], None]) -> None:
    data = json.loads((directory / "spack.lock").read_text())
    for change in changes:
        change(data)
    (directory / "spack.lock").write_text(json.dumps(data))


@pytest.fixture
def own(copy: Path) -> Callable[..., Path]:
    """What a SLES concretizes for itself: its manifest, lock and record."""
    path = copy / "spack.yaml"
    path.write_text(path.read_text().replace("systems/debian12", "systems/sles15"))
    gcc = copy.parents[2] / SCOPES / "systems/sles15/packages.yaml"
    gcc.write_text(gcc.read_text().replace("gcc@13.3.0", "gcc@12.2.0"))

    def made(*changes: Callable[[Lock], None]) -> Path:
        rewrite(copy, *changes, concretized_again)
        inputs.write(manifest.load(path), lock.load(copy / "spack.lock"), machine=True)
        return copy

    return made


def test_a_lock_of_another_system_is_checked_too(own: Callable[..., Path]) -> None:
    item = manifest.load(own() / "spack.yaml")
    assert check.judge(item) == check.LockVerdict((), made_for="sles15, zen3")


def test_an_input_of_a_lock_of_another_system_is_an_input_too(own: Callable[..., Path]) -> None:
    copy = own()
    recipe = copy.parents[2] / RECIPES / "ucx/package.py"
    recipe.write_text(recipe.read_text() + "# x\n")
    (found,) = problems(copy)
    assert "ucx/package.py has changed" in found
    assert "`make spack-concretize`" in found


def test_a_lock_that_its_record_does_not_describe_is_found(copy: Path) -> None:
    rewrite(copy, concretized_again)
    found = problems(copy)
    assert any("not the lock that inputs.json describes" in sentence for sentence in found)
    assert "is for sles15, but its manifest is for debian12" in found
    (copy / "inputs.json").unlink()
    assert any("has no inputs.json" in sentence for sentence in problems(copy))


def test_a_lock_of_another_system_must_keep_the_pins(own: Callable[..., Path], copy: Path) -> None:
    whole = (copy / "spack.lock").read_text()
    for change, named in PINNED:
        (copy / "spack.lock").write_text(whole)
        found = problems(own(change))
        assert any(named in sentence for sentence in found), found
        assert not [sentence for sentence in found if "was edited" in sentence]


def test_an_external_of_the_machine_is_declared_by_its_scope(
    own: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = own(home_prefix)
    (found,) = problems(copy)
    assert "/home/someone/rocm, which no scope declares" in found
    monkeypatch.setenv("BUSBAR_SPACK_SCOPE", str(tmp_path))
    for form in ("packages: {hip: %s}", "packages: {'hip:': %s}", "'packages:': {hip: %s}"):
        for key in ("externals", "'externals:'"):
            externals = f"{{{key}: [{{spec: hip@6.3.3, prefix: /home/someone/rocm}}]}}"
            (tmp_path / "packages.yaml").write_text(form % externals)
            assert not problems(copy), (form, key)


def test_an_edited_package_is_found(copy: Path) -> None:
    rewrite(copy, lambda data: node(data, "pmix")["parameters"].update(munge=True))
    assert any("pmix@6.0.0" in s and "was edited" in s for s in problems(copy))


def test_a_record_is_not_renewed_for_new_sources_if_another_input_changed(copy: Path) -> None:
    item = manifest.load(copy / "spack.yaml")
    program = copy.parents[2] / "reframe_checks/src/gpu_aware.cpp"
    program.write_text(program.read_text() + "// x\n")
    inputs.write(item, lock.load(item.lock), solved=False)
    assert problems(copy) == ()
    recipe = copy.parents[2] / RECIPES / "ucx/package.py"
    recipe.write_text(recipe.read_text() + "# x\n")
    with pytest.raises(BusbarError, match=r"ucx/package\.py changed since the lock was solved"):
        inputs.write(item, lock.load(item.lock), solved=False)


def test_a_wrong_record_is_named(copy: Path) -> None:
    for text in ("", "[]", "{}", '{"lock": 1}', '{"lock": "x", "inputs": 3}'):
        (copy / "inputs.json").write_text(text)
        with pytest.raises(BusbarError, match=r"inputs\.json"):
            problems(copy)


def test_configuration_of_the_machine_is_kept_out(copy: Path) -> None:
    path = copy / "spack.yaml"
    path.write_text(path.read_text().replace("include::", "include:"))
    assert "include::" in problems(copy)[0]


def test_a_wrong_manifest_is_named(copy: Path) -> None:
    path = copy / "spack.yaml"
    whole = path.read_text()
    for old, new, named in (
        ("_families/spack/cluster", "_families/spack/gone", "_families/spack/gone"),
        ("- $rocm", "- $rocks", "$rocks"),
        ("spack:", "stack:", "has no `spack:`"),
        ("spack:", "spack: [", "invalid YAML"),
    ):
        path.write_text(whole.replace(old, new, 1))
        with pytest.raises(BusbarError, match=r"spack\.yaml") as caught:
            problems(copy)
        assert named in str(caught.value)


WRONG_SCOPES = [
    ("packages:", "packages: must be a mapping"),
    ("packages: {slurm: }", "packages.slurm: must be a mapping"),
    ("packages: {slurm: {externals: }}", "packages.slurm: externals: must be a list"),
    ("packages: {slurm: {require: 3}}", "packages.slurm.require: must be a list"),
    ("packages: {slurm: {require: [{message: x}]}}", "packages.slurm.require: must be text"),
    ("packages: {all: {target: zen3}}", "packages.all: target: must be a list"),
    ("definitions: {x: [ucx]}", "definitions: must be a list"),
    ("include: [{git: x}]", "which Busbar cannot read"),
    ("packages: {ucx: {require: ['%gcc']}}", "cannot be checked without Spack"),
]


def test_a_wrong_scope_is_named(copy: Path) -> None:
    for text, named in WRONG_SCOPES:
        (copy.parents[2] / SCOPES / "cluster/wrong.yaml").write_text(f"{text}\n")
        with pytest.raises(BusbarError, match=r"wrong\.yaml") as caught:
            problems(copy)
        assert named in str(caught.value)


def test_an_external_may_have_modules_only_and_a_requirement_a_condition(copy: Path) -> None:
    text = """packages:
  slurm: {externals: [{spec: slurm@25-05, modules: [slurm]}]}
  ucx: {require: [{spec: '@9', when: +cuda}, '@1.14:']}
"""
    (copy.parents[2] / SCOPES / "cluster/more.yaml").write_text(text)
    (found,) = problems(copy)
    assert "cluster/more.yaml has changed" in found


def test_a_wrong_package_of_a_lock_is_named(copy: Path) -> None:
    whole = (copy / "spack.lock").read_text()
    for key in ("parameters", "version", "name", "arch"):
        (copy / "spack.lock").write_text(whole)
        rewrite(copy, set_in("ucx", key, to=3))
        with pytest.raises(BusbarError, match=r"spack\.lock: not a lock of Spack"):
            problems(copy)


def test_a_wrong_lock_is_named(tmp_path: Path) -> None:
    for text in ("", "{}", "[]", '{"_meta": {"lockfile-version": 5}}'):
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
    lines = locks.differences(old, lock.load(copy / "spack.lock"))
    assert lines == [
        f"ucx@1.14.1/{key[:7]} -> ucx@1.14.0/bbbbbbb: version 1.14.1 -> 1.14.0; dc=True -> False"
    ]


def test_order_is_no_difference(copy: Path) -> None:
    old = lock.load(copy / "spack.lock")
    data = json.loads((copy / "spack.lock").read_text())
    data["roots"].reverse()
    data["concrete_specs"] = dict(reversed(data["concrete_specs"].items()))
    (copy / "spack.lock").write_text(json.dumps(data, indent=1))
    assert locks.differences(old, lock.load(copy / "spack.lock")) == []


def test_the_check_takes_environments_and_sites(capsys: pytest.CaptureFixture[str]) -> None:
    assert locks.main(["check", "p4d", "host/ucx-current"]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == [
        *("cuda-sm_80-efa: ok", "cuda-sm_80-efa/ucx-current: ok", "host/ucx-current: ok")
    ]
    assert locks.main(["check", "cuda-sm_91"]) == 2
    assert "did you mean 'cuda-sm_90'?" in capsys.readouterr().err


OWN = "environment: ours\n    lanes: [ucx-1.14]"


def test_the_environment_beside_a_site_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = tmp_path / "_stacks/ours"
    stack.mkdir(parents=True)
    shutil.copy(ROOT / "site/_stacks/host/spack.lock", stack)
    text = (ROOT / "site/_stacks/host/spack.yaml").read_text()
    (stack / "spack.yaml").write_text(text.replace("../../_families", f"{ROOT}/site/_families"))
    text = (ROOT / "site/local/site.yaml").read_text().replace("name: local", "name: mine")
    text = text.replace("environment: host\n    lanes: [ucx-1.14, ucx-current]", OWN)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/site.yaml").write_text(text)
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(tmp_path))
    assert locks.main(["check", "mine"]) == 1
    assert "has no inputs.json" in capsys.readouterr().out
    assert locks.main(["record", "--machine", str(stack)]) == 0
    assert locks.main(["check", "mine", str(stack)]) == 0
    assert capsys.readouterr().out == f"{stack}: ok, concretized for debian12, x86_64_v3\n"


def test_the_command_tells_by_its_exit_status(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = ROOT / STACK / "spack.lock", ROOT / "site/_stacks/rocm-gfx90a-5.4/spack.lock"
    assert locks.main(["diff", str(mine), str(copy / "spack.lock")]) == 0
    assert "the same" in capsys.readouterr().out
    assert locks.main(["diff", str(mine), str(other)]) == 1
    assert "6.3.3 -> 5.4.3" in capsys.readouterr().out
    assert locks.main(["diff", str(mine), str(copy / "none")]) == 2
    assert locks.main(["check", "atlantis"]) == 2


def test_versions_match_as_in_spack() -> None:
    found = next(iter(lock.load(ROOT / "site/_stacks/host/spack.lock").named("openmpi")))
    assert unmet(found, "openmpi@5.0 fabrics=ucx ~cuda") == []
    assert unmet(found, "@5.1 +cuda fabrics=ofi") == ["@5.1", "+cuda", "fabrics=ofi"]
    for wanted, met in (
        ("5:", 1),
        ("4.1:5.0", 1),
        (":4", 0),
        ("5.1:", 0),
        ("4,5.0", 1),
        ("=5.0", 0),
    ):
        assert (unmet(found, f"@{wanted}") == []) == met, wanted
    with pytest.raises(BusbarError, match="without Spack"):
        unmet(found, "openmpi ^ucx@1.14")
