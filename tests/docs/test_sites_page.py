# SPDX-License-Identifier: MIT
"""The link classes that docs/sites.md names are those that ship."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from busbar.site.load import link_classes_of

PAGE = (Path(__file__).parents[2] / "docs" / "sites.md").read_text()


@pytest.mark.parametrize(
    ("row", "kind"), [("GPUs", "GPU"), ("GPU and host", "host"), ("nodes", "network")]
)
def test_the_classes_of_a_kind(row: str, kind: str) -> None:
    (line,) = re.findall(rf"^ +\| {row} \| (`.*) \|$", PAGE, re.MULTILINE)
    named = set(re.findall(r"`(.+?)`", line))
    assert len(named) >= 4
    classes = link_classes_of()
    assert {classes[name].kind for name in named} == {kind}
