# SPDX-License-Identifier: MIT
"""The site of an output that names its GPUs, if only one kind of system can have printed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar import site as sites
from busbar.engine.collect import collect
from busbar.engine.identify import recognise_site
from busbar.explain import Source
from busbar.explain.rulebook import PATTERNS
from tests.cases import cases

from .test_one_judge import GIB, table


def recognised(model_of: str, ranks: int, nodes: int) -> str | None:
    """The site of a table of nccl-tests that such GPUs printed."""
    site = sites.load(model_of)
    partition = site.partitions[0].name
    text = table(site, partition, "all_reduce", {GIB: 10.0}, ranks=ranks * nodes, nodes=nodes)
    (output,) = collect([Source.from_text("run.log", text)], PATTERNS)
    found = recognise_site(output, nodes)
    return found.name if found else None


@cases(
    ("model_of", "ranks", "nodes", "name"),
    [
        ("h200x4", 4, 1, "h200x4"),
        ("h200x4", 2, 1, "h200x4"),
        # Eight H200 are no longer those of h200x4; all known nodes of them have the same links.
        ("dgx-h200", 8, 1, "dgx-h200"),
        ("p5en", 8, 1, "dgx-h200"),
        ("dgx-h100", 8, 1, "dgx-h100"),
        ("hgx-a100", 8, 1, "hgx-a100"),
        ("dgx-b200", 8, 1, "dgx-b200"),
        ("gb200-nvl72", 4, 2, "gb200-nvl72"),
        ("gh200x4-slingshot", 4, 2, "gh200x4-slingshot"),
        ("mi300x-ib", 8, 1, "mi300x"),
        ("mi300x-ib", 8, 2, "mi300x"),  # the networks of both are as fast
        # Eight H100 may have any network; those of p5 and DGX differ.
        ("dgx-h100", 8, 2, None),
        ("dgx-h200", 8, 2, None),
        ("dgx-b200", 8, 2, None),
        ("hgx-a100", 8, 2, None),
        # Some of the GPUs: of a node with other links or NICs than the site.
        ("dgx-h100", 4, 1, None),
        ("gh200x4-slingshot", 1, 2, None),
        # Four A100 40 GB are those of Perlmutter, or half of a node with NVSwitch.
        ("a100x4-slingshot", 4, 1, None),
        ("p4d", 8, 1, None),
    ],
)
def test_gpus_name_a_site(model_of: str, ranks: int, nodes: int, name: str | None) -> None:
    assert recognised(model_of, ranks, nodes) == name


def test_a_site_of_ones_own_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(sites.load("dgx-h100").directory or "") / "site.yaml").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "site.yaml").write_text(text.replace("name: dgx-h100", "name: mine"))
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(tmp_path))
    assert recognised("dgx-h100", 8, 2) == "mine"
    assert recognised("dgx-h100", 4, 1) == "mine"
