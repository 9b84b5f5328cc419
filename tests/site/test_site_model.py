# SPDX-License-Identifier: MIT
"""Sites load, and wrong ones say where and what."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from busbar import site as sites
from busbar.cli import main
from busbar.detect.write import REFRAME_FILE
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, Question, point_to_point
from busbar.expect.lint import lint
from tests.cases import cases

from .edited import edit

SHIPPED = Path(__file__).parents[2] / "site"
SITES = (
    *("a100x4-hdr100", "a100x4-slingshot", "dgx-b200", "dgx-h100", "dgx-h200", "gb200-nvl72"),
    *("gh200x4-slingshot", "h20-roce", "h200x4", "hgx-a100", "l40s", "local", "mi250x"),
    *("mi250x-cray", "mi250x-slingshot", "mi300a-slingshot", "mi300x", "mi300x-ib"),
    *("p3dn", "p4d", "p4de", "p5", "p5en", "p6-b200"),
)


def test_the_sites_that_ship() -> None:
    assert tuple(sites.names()) == SITES


@cases("name", SITES)
def test_shipped_site_is_clean(name: str) -> None:
    assert lint(name) == []


@cases("name", SITES)
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


def test_a_broken_site_does_not_hide_the_others(copy: Path, capsys) -> None:
    edit(copy, "p5", lambda s: s.update(colour="[green]"))
    assert main(["site", "list", "--json"]) == 1
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(SITES)
    assert "broken: " in rows["p5"]["note"]
    assert "colour: unknown key" in rows["p5"]["note"]
    assert main(["site", "list"]) == 1
    printed = capsys.readouterr().out
    assert all(name in printed for name in SITES[-1:])
    assert "\np5: broken: " in printed


def test_detect_refuses_a_name_that_lint_would_refuse(tmp_path: Path, capsys) -> None:
    assert main(["site", "detect", "--output", str(tmp_path / "My_Site")]) == 2
    assert "invalid site name 'My_Site'" in capsys.readouterr().err
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


@cases(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", r"site\.yaml:2: duplicate key 'a'"),
        ("- a\n", "must be a mapping"),
        ("a: [\n", r"site\.yaml:2: invalid YAML"),
        ("", "must be a mapping"),
        ("a: &a [*a]\n", r"site\.yaml:1: an alias refers to a node that contains it"),
        ("a: &a {b: {c: *a}}\n", r"site\.yaml:1: an alias refers to a node that contains it"),
        ("a: " + "[" * 3000 + "]" * 3000, r"site\.yaml:1: nested too deeply"),
        ("a: 2026-13-01\n", r"site\.yaml: invalid value: month"),
        ("a: &a [1]\nb: [*a, *a]\n", "name: missing key"),
        ("name: wrong\n", "description: missing key; add it; 4 more errors"),
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
    with pytest.raises(BusbarError, match="is named 'p5' but its directory 'p6'"):
        sites.load("p6")


def test_sites_that_are_like_each_other(copy: Path) -> None:
    edit(copy, "p4d", lambda s: s.update(nodes_like="p4de"))
    with pytest.raises(BusbarError, match="nodes_like is circular"):
        sites.load("p4de")


def test_unknown_site_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["site", "show", "p6"]) == 2
    assert "known sites: a100x4-hdr100, a100x4-slingshot" in capsys.readouterr().err


def test_names_that_no_file_can_have(copy: Path) -> None:
    with pytest.raises(BusbarError, match="no site 'aaa"):
        sites.load("a" * 5000)
    edit(copy, "p5", lambda s: s.update(family="a" * 5000))
    with pytest.raises(BusbarError, match="no family 'aaa"):
        sites.load("p5")


def test_the_largest_node_is_linted_at_once(copy: Path) -> None:
    """128 GPUs with a link between any two, and a collective whose bound crosses every cut."""
    links = {"all_pairs": {"class": "wire", "count": 1}}
    classes = copy / "_families" / "links.yaml"
    wire = "link_classes:\n  wire: {raw_gb_per_s: 25, source: a test}\n"
    classes.write_text(classes.read_text().replace("link_classes:\n", wire, 1))

    def grow(site: dict[str, Any]) -> None:
        gpus = site["node_types"]["h200x4"]["gpus"]
        gpus.update(count=128, links=links)
        site["node_types"]["h200x4"].pop("numa")
        site["references"] = [{"bench": "all_reduce", "gb_per_s": 10, "source": "threshold"}]

    edit(copy, "h200x4", grow)
    begin = time.process_time()
    assert lint("h200x4") == []
    assert time.process_time() - begin < 60


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
    (directory / "reframe.py").write_text(REFRAME_FILE)
    assert lint(directory) == []
    site = sites.load(directory)
    near = point_to_point(site, Question(bench="osu_bw", src=0, dst=1, nbytes=2**28))
    assert near.limit == 150
    assert near.proof == "none"
    with pytest.raises(NoExpectation, match="so data passes through the host"):
        point_to_point(site, Question(bench="osu_bw", src=0, dst=4, nbytes=2**28))


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
    assert "concretize again on site" in rows["mi300a-slingshot"]["note"]
    assert rows["p3dn"]["proof"] == "none"
    assert main(["site", "list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(SITES)]] == list(SITES)
    assert max(map(len, [head, *lines[: len(SITES)]])) <= 80
    (cray,) = [line for line in lines if line.endswith(": stack cray: concretize again on site")]
    assert cray.startswith("mi300a-slingshot: ")
