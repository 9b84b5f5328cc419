# SPDX-License-Identifier: MIT
"""``BUSBAR_SITE_PATH``: a center's own sites and families, beside those that ship."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from busbar import site as sites
from busbar.data import SITES
from busbar.detect.gather import Outputs
from busbar.detect.machine import compose, match
from busbar.expect.lint import lint
from busbar.site.load import find, ships
from tests.said import Command
from tests.site.saved import h200_outputs


@pytest.fixture
def center(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of sites, named by ``BUSBAR_SITE_PATH``."""
    root = tmp_path / "center"
    root.mkdir()
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(root))
    return root


def copied(root: Path, site: str, name: str, **changes: Any) -> Path:
    """Copy a shipped site under another name."""
    facts = yaml.safe_load((SITES / site / "site.yaml").read_text())
    (root / name).mkdir(parents=True)
    text = yaml.safe_dump({**facts, "name": name, **changes})
    (root / name / "site.yaml").write_text(text)
    shutil.copy(SITES / site / "reframe.py", root / name)
    return root / name


def listed_from(busbar: Command) -> dict[str, str]:
    return {row["name"]: row["from"] for row in busbar("site list --json").json}


def test_own_sites_add_to_what_ships(center: Path, busbar: Command) -> None:
    before = sites.names()
    copied(center, "h200x4", "big")
    assert sites.names() == sorted([*before, "big"])
    listed = listed_from(busbar)
    assert (listed["big"], listed["p5"]) == (str(center), "busbar")
    assert busbar("expect --site big --from 0 --to 1").status == 0
    said = busbar("site lint")
    assert said.status == 0
    assert f"{len(before) + 1} sites, 0 findings" in said.out


def test_an_own_site_wins_by_name(center: Path, busbar: Command) -> None:
    copied(center, "h200x4", "h200x4", description="ours")
    assert sites.load("h200x4").description == "ours"
    assert not ships(sites.load("h200x4"))
    assert listed_from(busbar)["h200x4"] == str(center)


def test_the_first_directory_wins(center: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = center.with_name("other")
    for root in (center, other):
        copied(root, "h200x4", "big")
    monkeypatch.setenv("BUSBAR_SITE_PATH", f"{other}:{center}")
    assert find("big").parent.parent == other


def test_lint_names_the_file_of_an_own_site(center: Path, busbar: Command) -> None:
    copied(center, "h200x4", "big", colour="green")
    said = busbar("site lint")
    assert said.status == 1
    assert f"{center}/big/site.yaml:" in said.out


def test_an_own_family_serves_own_sites_only(center: Path) -> None:
    family = yaml.safe_load((SITES / "_families" / "efa.yaml").read_text())
    (center / "_families").mkdir()
    (center / "_families" / "efa.yaml").write_text(yaml.safe_dump({**family, "variables": []}))
    copied(center, "p5", "ours")

    def variables(name: str) -> set[str]:
        return {variable.name for variable in sites.family(sites.load(name)).variables}

    assert "FI_EFA_FORK_SAFE" in variables("p5")
    # What its family includes ships, and is found.
    assert variables("ours") == variables("h200x4")


def test_an_own_link_class_adds_to_those_that_ship(center: Path) -> None:
    (center / "_families").mkdir()
    classes = yaml.safe_load((SITES / "_families" / "links.yaml").read_text())["link_classes"]
    own = {"nvlink9": classes["nvlink4"] | {"source": "a data sheet"}}
    text = yaml.safe_dump({"link_classes": own})
    (center / "_families" / "links.yaml").write_text(text)
    copied(center, "h200x4", "big")
    assert set(sites.link_classes(sites.load("big"))) == {*classes, "nvlink9"}
    assert set(sites.link_classes(sites.load("h200x4"))) == set(classes)


def test_this_machine_is_the_own_site_before_one_that_ships(center: Path) -> None:
    detected = compose(Outputs(h200_outputs()))
    assert match(detected) == "h200x4"
    copied(center, "h200x4", "x-ours")
    assert match(detected) == "x-ours"


def test_a_log_is_of_the_own_site_before_one_that_ships(
    center: Path, data: Path, busbar: Command
) -> None:
    log = data / "h200x4" / "nccl_healthy_a.log"
    assert busbar("explain --json", log).json["site"] == "h200x4"
    copied(center, "h200x4", "x-ours")
    assert busbar("explain --json", log).json["site"] == "x-ours"


def test_a_directory_that_is_not_there_has_no_sites(center: Path, busbar: Command) -> None:
    center.rmdir()
    said = busbar("site show p5")
    assert said.status == 0
    assert f"BUSBAR_SITE_PATH: {str(center)!r} does not exist" in said.err
    assert busbar(f"site detect --like p5 --output {center}/x-new").status == 0
    assert busbar("site show x-new").status == 0


def test_a_file_is_no_directory_of_sites(center: Path, busbar: Command) -> None:
    center.rmdir()
    center.touch()
    for command in ("site list", "site lint", "site show p5"):
        said = busbar(command)
        assert said.status == 2
        assert f"BUSBAR_SITE_PATH: {str(center)!r} is not a directory" in said.err


BAND = """\
link_classes:
  nvlink4:
    bands:
      - {bench: osu_bw, bytes: [1, 4096], latency_us: 1, share: 0.5, low: 0.9, high: 1.1,
         proof: none, readings: 1, fitted: [share], source: a run of our own}
  wire: {raw_gb_per_s: 7, source: a cable}
"""


def test_a_site_adds_link_classes_and_bands_of_its_own(tmp_path: Path, busbar: Command) -> None:
    assert busbar("site detect --like h200x4 --output", tmp_path / "mine").status == 0
    families = tmp_path / "mine" / "_families"
    families.mkdir()
    (families / "links.yaml").write_text(BAND)
    shipped = sites.link_classes(sites.load("h200x4"))
    own = sites.link_classes(sites.load(tmp_path / "mine"))
    assert set(own) == {*shipped, "wire"}
    assert own["nvlink4"].raw_gb_per_s == shipped["nvlink4"].raw_gb_per_s
    assert own["nvlink4"].bands[1:] == shipped["nvlink4"].bands
    assert own["nvlink4"].bands[0].source == "a run of our own"
    (families / "mine.yaml").write_text("family: mine\ndescription: a test\nincludes: [nvlink4]\n")
    file = tmp_path / "mine" / "site.yaml"
    text = file.read_text().replace("A system like h200x4", "Ours")
    file.write_text(text.replace("family: nvlink4", "family: mine"))
    assert sites.family(sites.load(tmp_path / "mine")).family == "mine"
    assert lint(tmp_path / "mine") == []
