# SPDX-License-Identifier: MIT
"""Which checks each site would run: one golden list a site, so that none is lost unnoticed.

``GOLDEN=write`` in the environment writes the lists again; the change is then reviewed by eye.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.check.listing import describe, lines, match
from busbar.data import CHECKS
from busbar.delivery.environments import Choice
from busbar.delivery.reframe import configuration

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
DECLARED = Choice(declared=True)

pytestmark = pytest.mark.run


@pytest.fixture(scope="module")
def described():
    """All checks; what they ask for does not depend on the site."""
    return describe(ROOT / "site" / "local", DECLARED, [CHECKS])


def test_every_shipped_site_has_a_list_and_a_configuration():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(sites.names())
    for name in sites.names():
        assert (ROOT / "site" / name / "reframe.py").is_file()


@pytest.mark.parametrize("name", sites.names())
def test_list(described, name):
    config = configuration(ROOT / "site" / name, choice=DECLARED)
    found = sorted((match(config, check) for check in described), key=lambda each: each.name)
    text = "\n".join(lines(found)) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


def test_reframe_selects_the_same(described):
    """The list's rule for features is ReFrame's."""
    config = configuration(ROOT / "site" / "mi300x", choice=DECLARED)
    ours = {m.name for m in (match(config, check) for check in described) if m.runs_in}
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("reframe"), "--nocolor", "-l"),
            *("-C", ROOT / "site" / "mi300x" / "reframe.py", "-c", CHECKS),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **DECLARED.to_environment()},
    )
    theirs = {
        line.removeprefix("- ").rpartition(" /")[0]
        for line in done.stdout.splitlines()
        if line.startswith("- ")
    }
    assert ours == theirs


@pytest.mark.xdist_group("mpi")
def test_require_fails_without_the_feature(tmp_path):
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("busbar"), "check", "--site=local"),
            *("-n", "memory", "--require", "osu", "--output", tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "feature osu is required and not here" in done.stdout
    assert "skipped" not in done.stdout
