# SPDX-License-Identifier: MIT
"""Sites load, and wrong ones say where and what."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from busbar import site as sites
from busbar.detect.write import REFRAME_FILE
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, Question, point_to_point
from busbar.expect.lint import lint
from tests.cases import cases
from tests.said import Command

from .edited import edit

SHIPPED = Path(__file__).parents[2] / "site"
SITES = (
    *("a100x4-hdr100", "a100x4-slingshot", "cpu-ib", "dgx-b200", "dgx-b300", "dgx-h100"),
    *("dgx-h200", "dgx-spark", "gb200-nvl72", "gb300-nvl72", "gcp-a3-high", "gcp-a3-mega"),
    *("gcp-a3-ultra", "gcp-a4", "gh200x4-slingshot", "h20-roce", "h200x4", "hgx-a100"),
    *("hgx-b200-roce", "hgx-b300-roce", "hgx-h100-roce", "hgx-h200-roce", "l40s", "local"),
    *("mi250x", "mi250x-cray", "mi250x-slingshot", "mi300a-slingshot", "mi300x", "mi300x-ib"),
    *("mi325x", "mi350x", "mi355x", "p3dn", "p4d", "p4de", "p5", "p5en", "p6-b200"),
    "rtx-pro-6000",
)


def test_the_sites_that_ship() -> None:
    assert tuple(sites.names()) == SITES


@cases("name", SITES)
def test_shipped_site_is_clean_and_every_number_has_a_source(name: str) -> None:
    assert lint(name) == []
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


def test_nodes_that_others_know() -> None:
    local = sites.load("local").node
    assert local.cores >= 1
    assert local.gpus is None
    one, other = sites.load("p4d").node, sites.load("p4de").node
    assert one.nics == other.nics
    assert other.gpus.model == "NVIDIA A100-SXM4-80GB"
    assert (one.instance_type, other.instance_type) == ("p4d.24xlarge", "p4de.24xlarge")


def test_a_broken_site_does_not_hide_the_others(copy: Path, busbar: Command) -> None:
    edit(copy, "p5", lambda s: s.update(colour="[green]"))
    said = busbar("site list --json")
    notes = {row["name"]: row["note"] for row in said.json}
    assert (said.status, set(notes)) == (1, set(SITES))
    assert "broken: " in notes["p5"]
    assert "colour: unknown key" in notes["p5"]
    said = busbar("site list")
    assert said.status == 1
    assert all(name in said.out for name in SITES[-1:])
    assert "\np5: broken: " in said.out


def test_names_that_no_site_has(tmp_path: Path, busbar: Command) -> None:
    """Detection refuses a name that lint would refuse."""
    words = "invalid site name 'My_Site'"
    busbar.refuses(words, "site detect --output", tmp_path / "My_Site")
    assert list(tmp_path.iterdir()) == []
    busbar.refuses("did you mean 'p6-b200'?", "site show p6")


BROKEN = {
    "h200x4/site.yaml": (
        *("cores: 64", "cores: many", "h200x4"),
        r"site.yaml:\d+: node_types.h200x4.cores: .*'many'",
    ),
    "_families/efa.yaml": (
        *("launcher: mpirun", "launcher: rocket", "p5"),
        r"efa\.yaml:\d+: .*launcher",
    ),
    "p4d/site.yaml": (
        "name: p4d\n",
        "name: p4d\nnodes_like: p4de\n",
        "p4de",
        "nodes_like is circular",
    ),
    "p5/site.yaml": ("family: efa", f"family: {'a' * 5000}", "p5", "no family 'aaa"),
}


@cases("name", BROKEN)
def test_a_fault_is_placed_in_its_file_and_line(name: str, copy: Path) -> None:
    old, new, site, message = BROKEN[name]
    file = copy / name
    original = file.read_text()
    file.write_text(original.replace(old, new))
    with pytest.raises(BusbarError, match=message) as caught:
        sites.load(site)
    if "many" in new:
        lines = file.read_text().splitlines()
        line = next(n for n, text in enumerate(lines, 1) if "many" in text)
        assert f"site.yaml:{line}: " in str(caught.value)
    file.write_text(original)


def test_names_of_site_and_directory_agree(copy: Path) -> None:
    (copy / "p5").rename(copy / "p6")
    with pytest.raises(BusbarError, match="is named 'p5' but its directory 'p6'"):
        sites.load("p6")
    with pytest.raises(BusbarError, match="no site 'aaa"):
        sites.load("a" * 5000)


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
    gpus = {"vendor": "nvidia", "model": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "count": 8}
    facts = {
        "name": "ring",
        "description": "a ring",
        "family": "nvlink4",
        "partitions": [{"name": "gpu", "node_type": "ring", "launcher": "mpirun"}],
        "node_types": {"ring": {"gpus": gpus | {"links": {"pairs": pairs}}}},
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


def test_show_prints_facts_that_load_again(busbar: Command) -> None:
    facts = busbar("site show mi250x-cray --json").json
    assert len(facts["node_types"]["gpu"]["gpus"]["links"]["pairs"]) == 12
    shown = yaml.safe_load(busbar("site show mi300x").out)
    assert [step["command"] for step in shown["operator_steps"]] == [
        "amd-smi set --gpu all --compute-partition CPX",
        "amd-smi set --gpu all --memory-partition NPS4",
    ]
    assert len(busbar("site show p5 --json").json["launch_rules"]) == 2


def test_list_has_a_line_for_each_site(busbar: Command) -> None:
    rows = {row["name"]: row for row in busbar("site list --json").json}
    assert rows["p3dn"]["proof"] == "none"
    said = busbar("site list")
    head, *lines = said.out.splitlines()
    assert said.status == 0
    assert [line.split()[0] for line in lines[: len(SITES)]] == list(SITES)
    assert max(map(len, [head, *lines[: len(SITES)]])) <= 80
