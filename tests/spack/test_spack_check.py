# SPDX-License-Identifier: MIT
"""A damaged lock, manifest or input is found, and named by what is wrong with it."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from busbar import spack as lock
from busbar.errors import BusbarError
from busbar.parse.tables import load_yaml
from busbar.site import stacks
from ci.spack import check, gpu_aware_source, inputs, locks, manifest
from ci.spack.check import unmet
from tests.cases import some

from ..files import written

ROOT = Path(__file__).resolve().parents[2]
STACK = "site/_stacks/rocm-gfx942"
OWN_STACK = "site/mine/spack/rocm-gfx942"
TABLE, RECORD = "site/_stacks/stacks.yaml", "site/_stacks/inputs.json"
SCOPES = "site/_families/spack"
RECIPES = "packages/spack_repo/busbar/packages"
UCX = f"{RECIPES}/ucx/package.py"
Data = dict[str, Any]
Change = Callable[[Data], object]


@dataclass
class Copy:
    """A copy of a ROCm stack, the one with the most rules, and of all that determined its lock."""

    root: Path

    def __post_init__(self) -> None:
        self.directory = self.root / STACK
        self.lock = self.directory / lock.FILE

    def manifest(self) -> manifest.Manifest:
        return manifest.load(self.directory / "spack.yaml")

    def problems(self, words: str = "", item: manifest.Manifest | None = None) -> list[str]:
        """The problems that have these words, with the manifest as it was read if it is given."""
        found = check.judge(item or self.manifest()).problems
        return [each for each in found if words in each]

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        written(self.root / name, text.replace(old, new))

    def rewrite(self, *changes: Change) -> None:
        """Change the lock."""
        data = json.loads(self.lock.read_text())
        for change in changes:
            change(data)
        self.lock.write_text(json.dumps(data))

    def take(self) -> None:
        """Make it an environment of a site, with a manifest of its own."""
        shared = stacks.shared(self.directory)
        assert shared
        own = self.root / OWN_STACK
        text = shared.text(own, self.root / SCOPES)
        shutil.copytree(self.directory, own)
        written(own / "spack.yaml", text)
        self.directory, self.lock = own, own / lock.FILE

    @contextmanager
    def kept(self, name: str) -> Iterator[Path]:
        """Put back a file, or its absence, after it was changed."""
        path = self.root / name
        before = path.read_text() if path.exists() else None
        yield path
        path.unlink()
        if before is not None:
            path.write_text(before)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    for part in (STACK, SCOPES, "packages", "reframe_checks/src", "ci/spack"):
        shutil.copytree(ROOT / part, tmp_path / part)
    for name in (TABLE, RECORD):
        shutil.copy(ROOT / name, tmp_path / name)
    return Copy(tmp_path)


def node(data: Data, name: str) -> dict[str, Any]:
    (found,) = [entry for entry in data["concrete_specs"].values() if entry["name"] == name]
    return found  # type: ignore[no-any-return]


def set_in(package: str, *path: str, to: Any) -> Change:
    """Change one value of a package."""

    def change(data: Data) -> None:
        *above, last = path
        place = node(data, package)
        for key in above:
            place = place[key]
        place[last] = to

    return change


def root_dropped(data: Data) -> None:
    data["roots"] = [root for root in data["roots"] if not root["spec"].startswith("ucc")]


def root_renamed(data: Data) -> None:
    root = next(root for root in data["roots"] if root["spec"].startswith("ucx"))
    root["spec"] = root["spec"].replace("ucx", "ucx2")


def amdclang_everywhere(data: Data) -> None:
    clang = node(data, "llvm-amdgpu")["hash"]
    for edge in node(data, "ucx")["dependencies"]:
        if "cxx" in edge["parameters"]["virtuals"]:
            edge.update(name="llvm-amdgpu", hash=clang)


def no_wrapper(data: Data) -> None:
    tests = node(data, "rccl-tests")
    tests["dependencies"] = [e for e in tests["dependencies"] if e["name"] != "compiler-wrapper"]


def second_ucx(data: Data) -> None:
    data["concrete_specs"]["a" * 32] = {**node(data, "ucx"), "hash": "a" * 32}


def branch_of_rccl_tests(data: Data) -> None:
    del node(data, "rccl-tests")["parameters"]["commit"]


other_gpu = set_in("ucc", "parameters", "amdgpu_target", to=["gfx90a"])
PINNED: list[tuple[Change, str]] = [
    (set_in("ucx", "version", to="1.14.0"), "ucx@1.14.0"),
    (set_in("ucx", "parameters", "rocm", to=False), "+rocm"),
    (set_in("openmpi", "parameters", "schedulers", to=["none"]), "schedulers=slurm"),
    (branch_of_rccl_tests, "commit="),
]
EDITED, OTHER_LOCK = "was edited", "is not the lock that inputs.json describes"
DAMAGE = [
    *PINNED,
    (amdclang_everywhere, "compiled by llvm-amdgpu"),
    (no_wrapper, "compiled without Spack's wrapper"),
    (set_in("ucx", "arch", "target", to="zen4"), "zen4"),
    (set_in("ucx", "arch", "platform_os", to="rhel9"), "rhel9"),
    (set_in("hip", "external", "path", to="/home/someone/rocm"), EDITED),
    (second_ucx, "2 builds of ucx"),
    (set_in("hip", "version", to="6.4.0"), "hip@6.4.0"),
    (set_in("ucx", "namespace", to="builtin"), EDITED),
    (root_dropped, OTHER_LOCK),
    (root_renamed, OTHER_LOCK),
    (other_gpu, "amdgpu_target=['gfx90a'], not amdgpu_target=gfx942"),
]


def test_damage_is_found(copy: Copy) -> None:
    missed, item = {}, copy.manifest()
    for damage, named in DAMAGE:
        with copy.kept(f"{STACK}/{lock.FILE}"):
            copy.rewrite(damage)
            if not copy.problems(named, item):
                missed[named] = copy.problems(item=item)
    assert missed == {}
    copy.rewrite(set_in("pmix", "parameters", "munge", to=True))
    (edited,) = copy.problems("was edited")
    assert "pmix@6.0.0" in edited


INPUTS = [
    (f"{RECIPES}/osu_micro_benchmarks/package.py", '"--enable-rocm"', '"--enable-rocr"'),
    (UCX, "1.22.0", "1.22.1"),
    (inputs.SOURCE, "#include", "// x\n#include"),
    (TABLE, "{variant}", "amdgpu_target=gfx950"),
    (TABLE, "rocm-6.3.3, cluster", "rocm-5.4.3, cluster"),
    (f"{SCOPES}/common/packages.yaml", "x86_64_v3", "x86_64_v4"),
    (f"{SCOPES}/common/packages.yaml", "7.5.2", "7.4"),
    (f"{SCOPES}/cluster/packages.yaml", "23-11-1-1", "24-05-0-0"),
    (f"{SCOPES}/rocm-6.3.3/packages.yaml", "hip@6.3.3", "hip@6.3.4"),
    (f"{SCOPES}/common/repos.yaml", "d4f7c711a6", "e4f7c711a6"),
    (f"{SCOPES}/common/concretizer.yaml", "unify: true", "unify: false"),
    (f"{SCOPES}/common/toolchains.yaml", "%c=gcc", "%c=cce"),
    (f"{SCOPES}/systems/debian12/packages.yaml", "gcc@12.2.0", "gcc@12.3.0"),
    (f"{SCOPES}/systems/debian12/os-release", "GLIBC=2.36", "GLIBC=2.37"),
    (f"{SCOPES}/rocm/definitions.yaml", "  - hwloc %system-gcc\n", ""),
    (TABLE, "{any: {rccl-tests", "{any: {pmix: {prefer: ['@5']}, rccl-tests"),
    (f"{SCOPES}/lanes/ucx-1.14/packages.yaml", "1.14.1", "1.15.0"),
    ("ci/spack/pins.env", "19dabef469", "29dabef469"),
]


def test_every_change_of_an_input_is_found(copy: Copy) -> None:
    missed = []
    for name, old, new in INPUTS:
        with copy.kept(name):
            copy.replace(name, old, new)
            if not any(s.startswith(f"{name} has changed") for s in copy.problems()):
                missed.append((name, old))
    assert missed == []
    # The order of repositories, too.
    line = "  busbar: ../../../../packages/spack_repo/busbar\n"
    with copy.kept(f"{SCOPES}/common/repos.yaml") as path:
        path.write_text(path.read_text().replace(line, "") + line)
        assert copy.problems("common/repos.yaml has changed")


def test_what_a_scope_includes_is_an_input(copy: Copy) -> None:
    written(copy.root / SCOPES / "common/include.yaml", "include: [../extra]\n")
    extra = "packages: {hwloc: {require: [+cairo]}}\n"
    written(copy.root / SCOPES / "extra/packages.yaml", extra)
    assert copy.problems("extra/packages.yaml has changed")


def test_a_new_file_of_a_scope_or_recipe_is_found(copy: Copy) -> None:
    for name, text in {
        f"{SCOPES}/cluster/concretizer.yaml": "concretizer: {unify: false}\n",
        f"{RECIPES}/pmix/package.py": "# ours\n",
        f"{RECIPES}/ucx/patches/fix.patch": "--- a\n",
        f"{RECIPES}/ucx/package.py~": "# an editor's copy\n",
    }.items():
        written(copy.root / name, text)
    found = copy.problems("has changed")
    assert len(found) == 2, found
    # The recipe names it, or the directory, or all such files.
    for words in ('"fix.patch"', '"patches"', '".patch"'):
        with copy.kept(UCX):
            copy.replace(UCX, "    conflicts(", f"    files = [{words}]\n    conflicts(")
            assert copy.problems("ucx/patches/fix.patch has changed"), words


def test_what_no_solve_reads_is_no_change(copy: Copy, tmp_path: Path) -> None:
    assert check.judge(copy.manifest()) == check.LockVerdict((), made_for="")
    for name in ("common/modules.yaml", "common/packages.yaml"):
        path = copy.root / SCOPES / name
        path.write_text(path.read_text().replace("hash_length: 7", "hash_length: 9") + "# x\n")
    written(copy.root / "reframe_checks/src/memory.cpp", "int main() {}\n")
    # A linked file is the same input.
    scope = copy.root / SCOPES / "cluster/packages.yaml"
    scope.rename(tmp_path / "elsewhere.yaml")
    scope.symlink_to(tmp_path / "elsewhere.yaml")
    assert copy.problems() == []


NAMES = {"recipes": RECIPES, "scopes": SCOPES, "stack": STACK, "table": TABLE, "record": RECORD}
CHANGES = {
    kind: [(name.format(**NAMES), *row) for name, rows in files.items() for row in rows]
    for kind, files in load_yaml(Path(__file__).with_name("changes.yaml")).items()
}


def found_of(copy: Copy, name: str, old: str | None, new: str) -> bool:
    """Make one change, and return whether the check finds it."""
    with copy.kept(name) as path:
        if old is None:
            written(path, new)
        else:
            copy.replace(name, old, new)
        try:
            found = bool(copy.problems() or check.judge_others(copy.root).problems)
        except BusbarError:
            found = True
        if old is None:
            path.touch()
        return found


def test_what_changes_a_lock_is_found_and_nothing_else(copy: Copy) -> None:
    assert [change for change in some(CHANGES["harmless"], 4) if found_of(copy, *change)] == []
    assert [change for change in some(CHANGES["harmful"], 4) if not found_of(copy, *change)] == []


def concretized_again(data: Data) -> None:
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
            del entry["hash"]
            text = json.dumps(entry, separators=(",", ":")).encode()
            name = base64.b32encode(hashlib.sha1(text).digest()).decode().lower()  # noqa: S324
            entry["hash"] = renamed[key] = name
        return renamed[key]

    data["concrete_specs"] = {rehash(key): nodes[key] for key in nodes}
    for root in data["roots"]:
        root["hash"] = renamed[root["hash"]]


@pytest.fixture
def own(copy: Copy) -> Callable[..., Copy]:
    """What a SLES concretizes for itself: its manifest, lock and record."""
    copy.take()
    copy.replace(f"{OWN_STACK}/spack.yaml", "systems/debian12", "systems/sles15")
    copy.replace(f"{SCOPES}/systems/sles15/packages.yaml", "gcc@13.3.0", "gcc@12.2.0")

    def made(*changes: Change) -> Copy:
        copy.rewrite(*changes, concretized_again)
        inputs.write(copy.manifest(), lock.load(copy.lock))
        return copy

    return made


def test_a_lock_of_another_system_is_checked_too(own: Callable[..., Copy]) -> None:
    copy = own()
    assert check.judge(copy.manifest()) == check.LockVerdict((), made_for="sles15, zen3")
    copy.replace(UCX, "1.22.0", "1.22.1")
    (found,) = copy.problems()
    assert "ucx/package.py has changed" in found
    assert "`make spack-concretize`" in found


def test_a_lock_that_its_record_does_not_describe_is_found(copy: Copy) -> None:
    copy.rewrite(concretized_again)
    assert copy.problems("not the lock that inputs.json describes")
    assert copy.problems("is for sles15, not for debian12")
    (copy.root / RECORD).unlink()
    assert copy.problems("has no record in inputs.json")


def test_a_lock_of_another_system_must_keep_the_pins(own: Callable[..., Copy], copy: Copy) -> None:
    for change, named in PINNED:
        with copy.kept(f"{OWN_STACK}/{lock.FILE}"):
            found = own(change).problems()
            assert any(named in each for each in found), found
            assert not any("was edited" in each for each in found)


def test_a_record_is_not_renewed_for_new_sources_if_another_input_changed(copy: Copy) -> None:
    item = copy.manifest()
    copy.replace(inputs.SOURCE, "#include", "// x\n#include")
    recipe, source = copy.root / RECIPES / "gpu_aware_mpi/package.py", copy.root / inputs.SOURCE
    recipe.write_text(gpu_aware_source.pinned(recipe.read_text(), source.read_text()))
    inputs.write(item, lock.load(item.lock), solved=False)
    assert copy.problems() == []
    copy.replace(UCX, "1.22.0", "1.22.1")
    named = r"ucx/package\.py changed since the lock was solved"
    for solved in (False, True):
        with pytest.raises(BusbarError, match=named):
            inputs.write(item, lock.load(item.lock), solved=solved)
    written(copy.lock, copy.lock.read_text())  # as a solve does
    inputs.write(item, lock.load(item.lock))
    assert copy.problems() == []


def test_configuration_of_the_machine_is_kept_out(copy: Copy) -> None:
    copy.take()
    copy.replace(f"{OWN_STACK}/spack.yaml", "include::", "include:")
    assert "include::" in copy.problems()[0]


SCOPE = f"{SCOPES}/cluster/packages.yaml"
ENTRIES = ('{"lock": 1}', '{"lock": "x", "inputs": 3}', "3")
WRONG = [
    *[(RECORD, text, "") for text in ("", "3", "[]")],
    *[(RECORD, f'{{"rocm-gfx942": {entry}}}', "") for entry in ENTRIES],
    *[(f"{STACK}/{lock.FILE}", text, "") for text in ("", "{}", "[]")],
    (f"{STACK}/{lock.FILE}", '{"_meta": {"lockfile-version": 5}}', ""),
    (SCOPE, "packages:", "packages: must be a mapping"),
    (SCOPE, "packages: {all: }", "packages: all: must be a mapping"),
    (SCOPE, "packages: {all: {target: zen3}}", "packages.all: target: must be a list"),
    (f"{SCOPES}/cluster/include.yaml", "include: [{git: x}]", "which Busbar cannot read"),
]
WRONG_MANIFESTS = [
    ("_families/spack/cluster", "_families/spack/gone", "_families/spack/gone"),
    ("spack:", "stack:", "has no `spack:`"),
    ("spack:", "spack: [", "invalid YAML"),
]


def test_a_file_that_cannot_be_read_is_named(copy: Copy) -> None:
    for name, text, named in WRONG:
        with copy.kept(name) as path:
            path.write_text(f"{text}\n" if text else "")
            with pytest.raises(BusbarError) as caught:
                copy.problems()
            assert path.name in str(caught.value)
            assert named in str(caught.value)
    with copy.kept(UCX) as path:
        path.write_bytes(path.read_bytes().replace(b"SPDX", b"\xff", 1))
        with pytest.raises(BusbarError, match=r"ucx/package\.py: invalid Python"):
            copy.problems()
    with copy.kept(TABLE) as path:
        for text in ("", "[]", "stacks: {}\ngpus: {sm_90: {rocm: []}}", "stacks: 3"):
            path.write_text(f"{text}\n")
            with pytest.raises(BusbarError, match=r"stacks\.yaml"):
                copy.problems()
    for key in ("parameters", "version", "name", "arch"):
        with copy.kept(f"{STACK}/{lock.FILE}"):
            copy.rewrite(set_in("ucx", key, to=3))
            with pytest.raises(BusbarError, match=r"spack\.lock: not a Spack lock"):
                copy.problems()


def test_a_manifest_that_cannot_be_read_is_named(copy: Copy) -> None:
    copy.take()
    path = copy.directory / "spack.yaml"
    whole = path.read_text()
    for old, new, named in WRONG_MANIFESTS:
        path.write_text(whole.replace(old, new, 1))
        with pytest.raises(BusbarError, match=r"spack\.yaml") as caught:
            copy.problems()
        assert named in str(caught.value)


def test_the_order_of_keys_is_no_edit_and_a_root_twice_is(copy: Copy) -> None:
    data = json.loads(copy.lock.read_text())
    copy.lock.write_text(json.dumps(data, sort_keys=True, indent=2))
    assert copy.problems() == []
    data["roots"].insert(0, {**data["roots"][0], "hash": data["roots"][1]["hash"]})
    copy.lock.write_text(json.dumps(data))
    with pytest.raises(BusbarError, match="a root is there twice"):
        copy.problems()


def test_a_difference_is_told_by_package(copy: Copy) -> None:
    old = lock.load(copy.lock)
    data = json.loads(copy.lock.read_text())
    # The order is no difference.
    data["roots"].reverse()
    data["concrete_specs"] = dict(reversed(data["concrete_specs"].items()))
    copy.lock.write_text(json.dumps(data, indent=1))
    assert locks.differences(old, lock.load(copy.lock)) == []
    changed = node(data, "ucx")
    key = changed["hash"]
    changed.update(version="1.14.0", hash="b" * 32)
    changed["parameters"]["dc"] = False
    copy.lock.write_text(json.dumps(data).replace(key, "b" * 32))
    assert locks.differences(old, lock.load(copy.lock)) == [
        f"ucx@1.14.1/{key[:7]} -> ucx@1.14.0/bbbbbbb: dc True -> False; version 1.14.1 -> 1.14.0"
    ]


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
    shared = stacks.shared(ROOT / "site/_stacks/host")
    assert shared
    text = shared.text(stack, ROOT / "site/_families/spack")
    written(stack / "spack.yaml", text)
    shutil.copy(ROOT / "site/_stacks/host/spack.lock", stack)
    text = (ROOT / "site/local/site.yaml").read_text().replace("name: local", "name: mine")
    text = text.replace("environment: host\n    lanes: [ucx-1.14, ucx-current]", OWN)
    written(tmp_path / "mine/site.yaml", text)
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(tmp_path))
    assert locks.main(["check", "mine"]) == 1
    assert "has no record in inputs.json" in capsys.readouterr().out
    assert locks.main(["record", str(stack)]) == 0
    assert locks.main(["check", "mine", str(stack)]) == 0
    assert capsys.readouterr().out == f"{stack}: ok, concretized for debian12, x86_64_v3\n"


def test_the_command_tells_by_its_exit_status(
    copy: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = ROOT / STACK / "spack.lock", ROOT / "site/_stacks/rocm-gfx90a-5.4/spack.lock"
    assert locks.main(["diff", str(mine), str(copy.lock)]) == 0
    assert "the same" in capsys.readouterr().out
    assert locks.main(["diff", str(mine), str(other)]) == 1
    assert "6.3.3 -> 5.4.3" in capsys.readouterr().out
    assert locks.main(["diff", str(mine), str(copy.root / "none")]) == 2
    assert locks.main(["check", "atlantis"]) == 2


def test_a_package_meets_a_pin_word_by_word() -> None:
    found = next(iter(lock.load(ROOT / "site/_stacks/host/spack.lock").named("openmpi")))
    assert found.version == "5.0.11"
    assert unmet(found, "@5.0 fabrics=ucx ~cuda schedulers=slurm,none") == [
        "schedulers=slurm,none"
    ]
    wrong = "@5.1 @5.0.1 @5.0.1: @0.11 +cuda ~fortran fabrics=ofi commit=x %gcc ^ucx"
    assert unmet(found, f"@5 {wrong} @5.0.11") == wrong.split()
