# SPDX-License-Identifier: MIT
"""ReFrame in a process that is started before its arguments are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from busbar.check.places import Order
from busbar.check.reframe import ReFrame
from busbar.delivery.choice import Choice
from busbar.delivery.reframe import configuration, write
from busbar.delivery.visibility import VARIABLES
from busbar.errors import BusbarError
from tests.said import ran

pytestmark = pytest.mark.run

CHECK = """\
import os

import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class {name}(rfm.RunOnlyRegressionTest):
    descr = "a check of others"
    valid_systems = ["*"]
    valid_prog_environs = ["{environ}"]
    local = True
    executable = "env"

    @rfm.core.builtins.sanity_function
    def nothing_is_hidden(self):
        return sn.assert_not_found("{hidden}", self.stdout)
"""


@pytest.fixture
def arguments(tmp_path: Path, root: Path) -> list[str]:
    """Those of a run of the checks below ``checks``."""
    (tmp_path / "checks").mkdir()
    file = write(configuration(root / "site" / "local", Choice()), tmp_path)
    words = ["-C", str(file), "-c", str(tmp_path / "checks"), "--prefix", str(tmp_path / "out")]
    return [*words, "--warn-as-error", "--nocolor", "-r"]


def check(tmp_path: Path, name: str, environ: str, hidden: str = "none") -> None:
    text = CHECK.format(name=name, environ=environ, hidden=hidden)
    (tmp_path / "checks" / f"{name}.py").write_text(text)


def test_it_says_what_can_run_before_it_runs(tmp_path, monkeypatch, arguments):
    """A module in the caller's directory is not taken for one of Python's."""
    (tmp_path / "json.py").write_text("raise SystemExit('not the module of Python')\n")
    monkeypatch.chdir(tmp_path)
    check(tmp_path, "one", "+host")
    check(tmp_path, "two", "+cuda -host")
    with ReFrame() as reframe:
        one, two = reframe.load(arguments)
        assert not (tmp_path / "out" / "output").exists()
        output = "".join(reframe.run(Order((one.hash,))))
    assert (one.name, one.features) == ("one", ("host",))
    assert one.runs_in == ("host+wheels-ucx-1_14",)
    assert (two.runs_in, two.reason) == ((), "environment wheels-ucx-1_14 lacks +cuda -host")
    assert "Ran 1/1 test case(s) from 1 check(s)" in output
    assert output.startswith("[ReFrame Setup]")


def test_a_choice_of_gpus_does_not_reach_the_jobs(tmp_path, monkeypatch, arguments):
    for name in VARIABLES:
        monkeypatch.setenv(name, "0")
    check(tmp_path, "one", "+host", hidden="|".join(VARIABLES))
    with ReFrame() as reframe:
        (one,) = reframe.load(arguments)
        assert "PASSED" in "".join(reframe.run(Order((one.hash,))))


def test_a_check_that_cannot_be_loaded_is_an_error_and_in_the_output(tmp_path, arguments):
    check(tmp_path, "one", "+host")
    with (tmp_path / "checks" / "one.py").open("a") as file:
        file.write("\nimport a_module_that_is_not_there\n")
    with ReFrame() as reframe:
        with pytest.raises(BusbarError, match="a_module_that_is_not_there"):
            reframe.load(arguments)
        assert "a_module_that_is_not_there" in "".join(reframe.run(Order(())))


def test_it_does_not_outlive_its_user(arguments):
    with ReFrame() as reframe:
        pass
    assert reframe._process.poll() is not None


def test_it_ends_silently_without_arguments():
    done = ran(
        sys.executable, "-P", "-m", "busbar.check.reframe_process", stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
