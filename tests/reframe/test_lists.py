# SPDX-License-Identifier: MIT
"""Which checks each site would run: one golden list a site, so that none is lost unnoticed.

``GOLDEN=write`` in the environment writes the lists again; the change is then reviewed by eye.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from reframe.core.runtime import temp_runtime
from reframe.frontend.loader import RegressionCheckLoader

from busbar import site as sites
from busbar.check.listing import lines, match
from busbar.data import CHECKS
from busbar.delivery.choice import Choice
from busbar.delivery.reframe import configuration, write
from tests.said import ran

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
DIRECTORIES = {name: ROOT / "site" / name for name in sites.names()}
DIRECTORIES["mixed"] = ROOT / "tests/data/sites/mixed"
"""NVIDIA, AMD and CPU partitions: each gets what fits its nodes."""

LIKE = {
    "dgx-h100": ("a100x4-hdr100", "dgx-b200", "dgx-h200", "hgx-a100"),
    "gcp-a4": ("gcp-a3-high", "gcp-a3-mega", "gcp-a3-ultra"),
    "gb200-nvl72": (
        *("dgx-b300", "gb300-nvl72", "hgx-b300-roce"),
        *("hgx-b200-roce", "hgx-h100-roce", "hgx-h200-roce"),
    ),
    "mi250x-slingshot": ("mi250x-cray",),
    "mi350x": ("mi355x",),
    "p5": ("p3dn", "p4d", "p4de", "p5en", "p6-b200"),
}
"""Sites with the list of another: that is the golden one of both."""
LISTS = {name: name for name in DIRECTORIES} | {
    name: golden for golden, alike in LIKE.items() for name in alike
}

pytestmark = pytest.mark.run


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The configuration file of a site with all that it declares."""

    def written(name: str) -> Path:
        declared = configuration(DIRECTORIES[name], Choice(declared=True))
        return write(declared, tmp_path_factory.mktemp(name))

    return written


@pytest.fixture(scope="module")
def checks(config):
    """All checks; what they ask for does not depend on the site."""
    with temp_runtime(config("local"), "local"):
        found = RegressionCheckLoader([str(CHECKS)]).load_all()
    return [check for check in found if not check.is_fixture()]


def test_every_shipped_site_has_a_list_and_a_configuration():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(LISTS.values())
    for directory in DIRECTORIES.values():
        assert (directory / "reframe.py").is_file()


@pytest.mark.parametrize("name", DIRECTORIES)
def test_list(config, checks, name):
    with temp_runtime(config(name), name):
        matches = sorted((match(check) for check in checks), key=lambda each: each.name)
    text = "\n".join(lines(matches)) + "\n"
    golden = GOLDEN / f"{LISTS[name]}.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_command_prints_the_list():
    """With the name of a site, of which nothing is on this machine."""
    done = ran(
        Path(sys.executable).with_name("busbar"), "check", "--site=mi300x", "--list", check=True
    )
    assert done.stdout == (GOLDEN / "mi300x.txt").read_text()


def test_require_fails_without_the_feature(tmp_path):
    done = ran(
        *(Path(sys.executable).with_name("busbar"), "check", "--site=local"),
        *("-n", "memory", "--require", "osu", "--output", tmp_path),
    )
    assert done.returncode == 1
    assert "feature osu is required but not available" in done.stdout
    assert "skipped" not in done.stdout
