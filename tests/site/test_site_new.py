# SPDX-License-Identifier: MIT
"""``busbar site detect --like`` writes a site that is clean, and refuses to overwrite one."""

from __future__ import annotations

from pathlib import Path

from busbar import site as sites
from busbar.detect.write import REFRAME_FILE
from busbar.expect.lint import lint
from tests.cases import cases, some
from tests.said import Command


@cases("like", some(sites.names(), 3))
def test_a_site_like_another_is_clean(like: str, tmp_path: Path, busbar: Command) -> None:
    directory = tmp_path / "mine"
    said = busbar(f"site detect --like {like} --output", directory)
    assert said.status == 0
    assert f"busbar site lint {directory}" in said.out
    (finding,) = lint(directory)
    assert "is still the text that --like wrote" in finding.rule
    file = directory / "site.yaml"
    file.write_text(file.read_text().replace(f"A system like {like}", "Ours"))
    assert lint(directory) == []
    site, model = sites.load(directory), sites.load(like)
    assert (site.name, site.proof, site.references) == ("mine", "none", ())
    assert [p.node_type for p in site.partitions] == [p.node_type for p in model.partitions]
    assert not site.tuning
    assert site.node.nics == model.node.nics
    assert (directory / "reframe.py").read_text() == REFRAME_FILE
    text = file.read_text()
    assert "# Where checks run. `access` has the options of the scheduler" in text
    edited = [line for line in text.splitlines() if line.endswith("  # CHECK")]
    assert all(any(f"{key}: " in line for line in edited) for key in ("scheduler", "name"))
    assert "--exclusive" not in "".join(edited)


@cases(
    ("words", "name", "message"),
    [
        ("--like p5", "My_Site", "invalid site name 'My_Site'"),
        ("--like h200x5", "mine", "no site 'h200x5'; did you mean 'h200x4'?"),
        ("--like zzz", "mine", "no site 'zzz'; busbar site list prints all sites"),
        ("--like p5", "taken", "already exists"),
        ("--like p5 --from x", "mine", "excludes --from"),
        ("--like p5 --compare p5", "mine", "not allowed with argument --like"),
    ],
)
def test_what_it_refuses(
    words: str, name: str, message: str, tmp_path: Path, busbar: Command
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "site.yaml").write_text("name: taken\n")
    busbar.refuses(message, f"site detect {words} --output", tmp_path / name)
    busbar.refuses("--like requires --output DIR", "site detect --like p5")
