# SPDX-License-Identifier: MIT
"""Sites load, wrong ones say where and what, and every rule has a bad example."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from busbar import site as sites
from busbar.cli import main
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, point_to_point
from busbar.expect.lint import lint

SHIPPED = Path(__file__).parents[2] / "site"
SITES = (
    *("h20-roce", "h200x4", "local", "mi250x", "mi250x-cray", "mi300x"),
    *("p3dn", "p4d", "p4de", "p5"),
)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sites and families in a directory of their own."""
    root = tmp_path / "sites"
    for file in [*SHIPPED.glob("*/site.yaml"), *SHIPPED.glob("_families/*.yaml")]:
        target = root / file.relative_to(SHIPPED)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(root))
    return root


def edit(root: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    file = root / name / "site.yaml"
    data = yaml.safe_load(file.read_text())
    change(data)
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return file


def test_the_sites_that_ship() -> None:
    assert tuple(sites.names()) == SITES


@pytest.mark.parametrize("name", SITES)
def test_shipped_site_is_clean(name: str) -> None:
    assert lint(name) == []


@pytest.mark.parametrize("name", SITES)
def test_every_number_and_variable_has_a_source(name: str) -> None:
    site = sites.load(name)
    for variable in sites.family(site).variables:
        assert len(variable.reason) > 10
        assert len(variable.source) > 5
    for link in sites.link_classes(site).values():
        assert link.source
        assert all(band.source for band in link.bands)


def test_efa_sites_differ_in_a_few_lines() -> None:
    for name in ("p4d", "p4de", "p5"):
        facts = (SHIPPED / name / "site.yaml").read_text().split("references:")[0]
        assert len(facts.splitlines()) <= 25


def test_local_is_this_machine() -> None:
    site = sites.load("local")
    assert site.node.cores >= 1
    assert site.node.gpus is None


def test_p4de_has_the_node_of_p4d_but_for_its_gpus() -> None:
    one, other = sites.load("p4d").node, sites.load("p4de").node
    assert one.nics == other.nics
    assert other.gpus.model == "NVIDIA A100-SXM4-80GB"
    assert (one.instance_type, other.instance_type) == ("p4d.24xlarge", "p4de.24xlarge")


# What is done to a site, and what the finding must say: key, rule, next step.
BREACHES: dict[str, tuple[str, Callable[[dict[str, Any]], object], str, str]] = {
    "unknown key": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(colour="green"),
        "node_types.h200x4.gpus.colour",
        "unknown key; check the spelling",
    ),
    "missing key": (
        "h200x4",
        lambda s: s.pop("family"),
        "",
        "family: this key is missing; add it",
    ),
    "wrong type": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(count="four"),
        "node_types.h200x4.gpus.count",
        "'four'",
    ),
    "no such family": ("p5", lambda s: s.update(family="eva"), "family", "known families: efa"),
    "no such node type": (
        "mi300x",
        lambda s: s["partitions"][0].update(node_type="spy"),
        "partitions[0].node_type",
        "names node type 'spy'",
    ),
    "unknown link class": (
        "mi300x",
        lambda s: s["node_types"]["spx"]["gpus"]["links"]["all_pairs"].update({"class": "wire"}),
        "node_types.spx.gpus.links",
        "unknown link class 'wire'",
    ),
    "two forms of links": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"]["links"].update(
            all_pairs={"class": "nvlink4", "count": 1}
        ),
        "gpus.links",
        "exactly one of switched",
    ),
    "a pair twice": (
        "mi250x",
        lambda s: s["node_types"]["gpu"]["gpus"]["links"]["pairs"].append(
            {"between": [1, 0], "class": "xgmi-mi250x", "count": 2}
        ),
        "gpus.links",
        "pair [0, 1] is listed twice",
    ),
    "a link to itself": (
        "mi250x",
        lambda s: s["node_types"]["gpu"]["gpus"]["links"]["pairs"][0].update(between=[3, 3]),
        "gpus.links",
        "links a GPU to itself",
    ),
    "a link to a GPU that is not there": (
        "mi250x",
        lambda s: s["node_types"]["gpu"]["gpus"]["links"]["pairs"][0].update(between=[0, 8]),
        "gpus.links.pairs[0].between",
        "there is no GPU 8",
    ),
    "NIC near a GPU that is not there": (
        "h20-roce",
        lambda s: s["node_types"]["h20"]["nics"][3].update(near_gpus=[6, 8]),
        "node_types.h20.nics[3].near_gpus",
        "near GPU 8",
    ),
    "rails": ("h20-roce", lambda s: s["fabric"].update(rails=8), "fabric.rails", "are on 4"),
    "NPS4 without CPX": (
        "mi300x",
        lambda s: s["node_types"]["spx"]["gpus"].update(
            partitioning={"compute": "QPX", "memory": "NPS4", "compute_count": 4}
        ),
        "node_types.spx.gpus.partitioning.memory",
        "NPS4 with QPX; it needs CPX",
    ),
    "more memory than compute partitions": (
        "mi300x",
        lambda s: s["node_types"]["spx"]["gpus"].update(
            partitioning={"compute": "SPX", "memory": "NPS2", "compute_count": 1}
        ),
        "node_types.spx.gpus.partitioning.memory",
        "2 memory partitions for 1 compute partitions",
    ),
    "several nodes without network": (
        "mi250x",
        lambda s: s["partitions"][0].update(nodes=2),
        "partitions[0].nodes",
        "no network between them",
    ),
    "stack of another vendor": (
        "mi300x",
        lambda s: s["deliveries"][0].update(stack="cuda"),
        "deliveries[0].stack",
        "the GPUs need rocm",
    ),
    "wrong architecture": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(arch="gfx942"),
        "node_types.h200x4.gpus.arch",
        "no architecture of nvidia",
    ),
    "bus addresses": (
        "h20-roce",
        lambda s: s["node_types"]["h20"]["gpus"]["bus_ids"].pop(),
        "node_types.h20.gpus.bus_ids",
        "7 addresses for 8 GPUs",
    ),
    "p4d above its bound": (
        "p4d",
        lambda s: s["references"].append(
            {"bench": "all_reduce", "nodes": 2, "gb_per_s": 300, "source": "threshold"}
        ),
        "references[2].gb_per_s",
        "above the physical bound of 93.75 GB/s",
    ),
    "p5 above its bound": (
        "p5",
        lambda s: s["references"].append(
            {"bench": "all_reduce", "nodes": 2, "gb_per_s": 800, "source": "threshold"}
        ),
        "references[5].gb_per_s",
        "above the physical bound of 750 GB/s",
    ),
    "reference above a bound without a band": (
        "p3dn",
        lambda s: s.update(
            references=[
                {"bench": "all_gather", "nodes": 2, "gb_per_s": 40, "source": "threshold"},
            ]
        ),
        "references[0].gb_per_s",
        "above the physical bound of 23.44 GB/s",
    ),
    "pair above its links": (
        "mi250x",
        lambda s: s["references"][0].update(pair=[0, 2]),
        "references[0].gb_per_s",
        "above the physical bound of 50 GB/s",
    ),
    "another model with the proof kept": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(model="NVIDIA H300"),
        "proof",
        "proof cannot be run: no band was read so on NVIDIA H300; set proof to none",
    ),
    "hosts": ("p5", lambda s: s.update(hosts="["), "hosts", "'[' is no regular expression"),
    "CPUs": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["numa"][0].update(cpus="abc"),
        "node_types.h200x4.numa[0].cpus",
        "'abc' is no CPU",
    ),
    "equal bus addresses": (
        "h20-roce",
        lambda s: s["node_types"]["h20"]["gpus"]["bus_ids"].__setitem__(1, "00000000:0f:00.0"),
        "node_types.h20.gpus.bus_ids",
        "two GPUs are at 00000000:0f:00.0",
    ),
    "a pair of one GPU": (
        "h200x4",
        lambda s: s["references"][1].update(pair=[1, 1]),
        "references[1]",
        "pair [1, 1] is one GPU",
    ),
    "unknown harness": (
        "h200x4",
        lambda s: s["references"][0].update(harness="nccl"),
        "references[0].harness",
        "unknown harness 'nccl'; known: nccl-tests, pytorch, rccl-tests",
    ),
    "unknown profile": (
        "mi300x",
        lambda s: s["references"][3].update(profile="turbo"),
        "references[3].profile",
        "unknown profile 'turbo'; known: msccl-one-process",
    ),
    "a variable of two lines": (
        "h20-roce",
        lambda s: s["tuning"].update(NCCL_SOCKET_IFNAME="a\nexport LD_PRELOAD=b"),
        "tuning.NCCL_SOCKET_IFNAME",
        "string should match pattern",
    ),
    "a latency in GB/s": (
        "h200x4",
        lambda s: s["references"][1].update(bench="osu_latency"),
        "references[1]",
        "osu_latency is stated by us",
    ),
    "a latency below its bound": (
        "h200x4",
        lambda s: s["references"].append(
            {"bench": "osu_latency", "us": 1, "bytes": 4194304, "source": "threshold"}
        ),
        "references[3].us",
        "1 us is below the physical bound of 9.321 us",
    ),
    "a latency outside its band": (
        "h200x4",
        lambda s: s["references"].append(
            {"bench": "osu_latency", "us": 14.4, "bytes": 8, "source": "threshold"}
        ),
        "references[3].us",
        "14.4 us is outside the band",
    ),
    "more GPUs than a node has": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(count=100_000),
        "node_types.h200x4.gpus.count",
        "less than or equal to 128",
    ),
    "unknown class to the host": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"]["host_link"].update({"class": "wire"}),
        "node_types.h200x4.gpus.host_link.class",
        "unknown link class 'wire'",
    ),
    "reference outside its band": (
        "p5",
        lambda s: s["references"][2].update(gb_per_s=150),
        "references[2].gb_per_s",
        "is outside the band",
    ),
}


@pytest.mark.parametrize("case", BREACHES)
def test_lint_refuses(case: str, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, change, key, rule = BREACHES[case]
    file = edit(copy, name, change)
    assert main(["site", "lint", name]) == 1
    printed = capsys.readouterr().out
    finding = next(line for line in printed.splitlines() if rule.lower() in line.lower())
    assert finding.startswith(str(file))
    assert key in finding
    assert re.search(r"; \w", finding)  # what to do


def test_lint_of_all_names_each_site_once(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(copy, "p5", lambda s: s.update(colour="green"))
    assert main(["site", "lint", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [finding["site"] for finding in findings] == ["p5"]


def test_a_latency_is_held_against_its_own_band(copy: Path) -> None:
    good = {"bench": "osu_latency", "us": 7.9, "bytes": 8, "source": "h200x2/osu_tuning.tsv"}
    edit(copy, "h200x4", lambda s: s["references"].append(good))
    assert lint("h200x4") == []


def test_no_sites_is_bad_input(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BUSBAR_SITE_PATH", "/nonexistent")
    for command in ("lint", "list"):
        assert main(["site", command]) == 2
        said = capsys.readouterr().err
        assert "/nonexistent: no sites found; set BUSBAR_SITE_PATH" in said


def test_a_broken_site_does_not_hide_the_others(copy: Path, capsys) -> None:
    edit(copy, "p5", lambda s: s.update(colour="[green]"))
    assert main(["site", "list", "--json"]) == 1
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(SITES)
    assert "broken: " in rows["p5"]["note"]
    assert "colour: unknown key" in rows["p5"]["note"]
    assert main(["site", "list"]) == 1
    assert all(name in capsys.readouterr().out for name in SITES[-1:])


def test_detect_refuses_a_name_that_lint_would_refuse(tmp_path: Path, capsys) -> None:
    assert main(["site", "detect", "--output", str(tmp_path / "My_Site")]) == 2
    assert "'My_Site' is no name of a site" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_lines_are_named(copy: Path) -> None:
    file = copy / "h200x4" / "site.yaml"
    file.write_text(file.read_text().replace("cores: 64", "cores: many"))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "many" in text)
    with pytest.raises(BusbarError, match=rf"site.yaml:{line}: node_types.h200x4.cores: .*'many'"):
        sites.load("h200x4")


def test_a_fault_in_the_family_is_placed_there(copy: Path) -> None:
    file = copy / "_families" / "efa.yaml"
    file.write_text(file.read_text().replace("launcher: mpirun", "launcher: rocket"))
    with pytest.raises(BusbarError, match=r"efa\.yaml:\d+: .*launcher"):
        sites.load("p5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", r"site\.yaml:2: key 'a' is written twice"),
        ("- a\n", "must be a mapping"),
        ("a: [\n", r"site\.yaml:2: is not YAML"),
        ("", "must be a mapping"),
        ("a: &a [*a]\n", r"site\.yaml:1: an alias leads back to what holds it"),
        ("a: &a {b: {c: *a}}\n", r"site\.yaml:1: an alias leads back to what holds it"),
        ("a: " + "[" * 3000 + "]" * 3000, r"site\.yaml: is nested too deeply"),
        ("a: 2026-13-01\n", r"site\.yaml: holds a value that is none of its type: month"),
        ("a: &a [1]\nb: [*a, *a]\n", "name: this key is missing"),
        ("name: wrong\n", "description: this key is missing; add it; 4 more findings"),
    ],
)
def test_files_that_are_no_site(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x" / "site.yaml"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(BusbarError, match=message):
        sites.load(file.parent)


@pytest.mark.parametrize(
    ("line", "key"), [("includes: 3", "includes"), ("site: 3", "site"), ("site: [a]", "site")]
)
def test_a_family_of_wrong_types(copy: Path, line: str, key: str) -> None:
    file = copy / "_families" / "generic.yaml"
    file.write_text(f"{file.read_text()}{line}\n")
    (finding,) = lint("local")
    assert finding.where.endswith(f": {key}")
    assert "generic.yaml" in finding.where


def test_names_of_site_and_directory_agree(copy: Path) -> None:
    (copy / "p5").rename(copy / "p6")
    with pytest.raises(BusbarError, match="is called 'p5' but its directory 'p6'"):
        sites.load("p6")


def test_sites_that_are_like_each_other(copy: Path) -> None:
    edit(copy, "p4d", lambda s: s.update(nodes_like="p4de"))
    with pytest.raises(BusbarError, match="in a circle"):
        sites.load("p4de")


def test_unknown_site_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "show", "p6"]) == 2
    assert "known sites: h20-roce, h200x4" in capsys.readouterr().err


def test_names_that_no_file_can_have(copy: Path) -> None:
    with pytest.raises(BusbarError, match="there is no site 'aaa"):
        sites.load("a" * 5000)
    edit(copy, "p5", lambda s: s.update(family="a" * 5000))
    with pytest.raises(BusbarError, match="there is no family 'aaa"):
        sites.load("p5")


def test_the_largest_node_is_linted_at_once(copy: Path) -> None:
    """128 GPUs with a link between any two, and a collective whose bound crosses every cut."""
    links = {"all_pairs": {"class": "nvlink4", "count": 1}}

    def grow(site: dict[str, Any]) -> None:
        gpus = site["node_types"]["h200x4"]["gpus"]
        gpus.update(count=128, links=links)
        site["node_types"]["h200x4"].pop("numa")
        site["references"] = [{"bench": "all_reduce", "gb_per_s": 10, "source": "threshold"}]

    edit(copy, "h200x4", grow)
    begin = time.perf_counter()
    assert lint("h200x4") == []
    assert time.perf_counter() - begin < 10


def test_a_new_site_touches_nothing_else(tmp_path: Path) -> None:
    """Eight GPUs on six links to each neighbour in a ring, in a directory of its own."""
    pairs = [
        {"between": sorted([i, (i + 1) % 8]), "class": "nvlink4", "count": 6} for i in range(8)
    ]
    facts = {
        "name": "ring",
        "description": "a ring",
        "family": "nvlink4",
        "partitions": [{"name": "gpu", "node_type": "ring", "launcher": "mpirun"}],
        "node_types": {
            "ring": {
                "gpus": {
                    "vendor": "nvidia",
                    "model": "NVIDIA H100 80GB HBM3",
                    "arch": "sm_90",
                    "count": 8,
                    "links": {"pairs": pairs},
                }
            }
        },
        "deliveries": [{"kind": "wheels", "stack": "cuda"}],
    }
    directory = tmp_path / "ring"
    directory.mkdir()
    (directory / "site.yaml").write_text(yaml.safe_dump(facts))
    assert lint(directory) == []
    site = sites.load(directory)
    near = point_to_point(site, bench="osu_bw", src=0, dst=1, nbytes=2**28)
    assert near.limit == 150
    assert near.proof == "none"
    with pytest.raises(NoExpectation, match="so bytes pass through the host"):
        point_to_point(site, bench="osu_bw", src=0, dst=4, nbytes=2**28)


def test_show_prints_facts_that_load_again(tmp_path: Path, capsys) -> None:
    assert main(["site", "show", "mi250x-cray", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts["node_types"]["gpu"]["gpus"]["links"]["pairs"]) == 12
    assert main(["site", "show", "mi300x"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    steps = [step["command"] for step in shown["operator_steps"]]
    assert steps == [
        "amd-smi set --gpu all --compute-partition CPX",
        "amd-smi set --gpu all --memory-partition NPS4",
    ]
    assert main(["site", "show", "p5", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["launch_rules"]) == 2


def test_list_shows_what_must_be_concretized_again(capsys) -> None:
    assert main(["site", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert "concretize again on site" in rows["mi250x-cray"]["note"]
    assert rows["p3dn"]["proof"] == "none"
    assert main(["site", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in SITES)
