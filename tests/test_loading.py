# SPDX-License-Identifier: MIT
"""ReFrame in a process that is started before its arguments are known."""

from __future__ import annotations

import subprocess
import sys

import pytest
import reframe

from busbar.check.reframe import Loading

pytestmark = pytest.mark.run


def test_it_runs_what_it_is_told(tmp_path, monkeypatch):
    """A module in the caller's directory is not taken for one of Python's."""
    (tmp_path / "json.py").write_text("raise SystemExit('not the module of Python')\n")
    monkeypatch.chdir(tmp_path)
    assert list(Loading().run(["--version"], {})) == [f"{reframe.VERSION}\n"]


def test_it_gets_the_environment():
    (line,) = Loading().run(["--show-config=general/0/report_file"], {"RFM_REPORT_FILE": "/here"})
    assert "/here" in line


def test_it_ends_without_a_word_where_nothing_is_to_be_run():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "busbar.check.reframe"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
