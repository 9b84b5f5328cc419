# SPDX-License-Identifier: MIT
"""``busbar check --list`` asks ReFrame about the same stack and partitions as a run."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest

from busbar.check.processes import Interruption
from busbar.check.run import RunPlan
from busbar.cli import build_parser
from busbar.commands import check, check_run
from busbar.errors import BusbarError
from tests.files import executable

ROOT = Path(__file__).resolve().parents[1]
ETHERNET = """\
name: ethernet
description: two nodes with Ethernet only
family: generic
scheduler: local
partitions:
  - {name: cpu, node_type: node, launcher: mpirun, nodes: 2}
node_types:
  node: {cores: 2, nics: [{name: eth0, class: eth-25g}]}
fabric: {provider: tcp, rails: 1}
deliveries:
  - {kind: spack, stack: host, features: [osu]}
  - {kind: wheels, stack: host}
"""


@pytest.fixture
def configurations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations with which ReFrame would load the checks."""
    found: list[Any] = []

    def load(plan: RunPlan, _: object) -> NoReturn:
        config = runpy.run_path(str(plan.config))["site_configuration"]
        environments, systems = config["environments"], config["systems"]
        found.append((environments, systems, plan.options, plan.checks, plan.variables))
        raise BusbarError("enough is known", hint="stop")

    class NoReFrame:
        def __enter__(self) -> object:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(check_run, "load", load)
    monkeypatch.setattr(check, "ReFrame", NoReFrame)
    monkeypatch.setattr(check_run, "run", lambda *_: [])
    return found


def busbar(*words: str) -> str:
    """Run the command in this process; return its error."""
    args = build_parser(["check"]).parse_args(["check", *words])
    args.interruption = Interruption()
    try:
        check.check(args)
    except BusbarError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("site", ["local", "ethernet"])
@pytest.mark.parametrize("options", [[], ["--prefix"]])
def test_the_list_is_of_what_a_run_takes(
    site: str, options: list[str], configurations: list[Any], tmp_path: Path
) -> None:
    """Not of all that site.yaml declares: features are those that are installed."""
    if site == "ethernet":
        directory = tmp_path / site
        directory.mkdir()
        (directory / "site.yaml").write_text(ETHERNET)
        shutil.copy(ROOT / "site" / "local" / "reframe.py", directory)
        site = str(directory)
    executable(tmp_path / "bin" / "osu_bw", "")
    words = ["--site", site, "--output", str(tmp_path / "out")]
    words += [f"{option}={tmp_path}" for option in options]
    busbar(*words)
    assert busbar(*words, "--list") == "enough is known; stop"
    run, listed = configurations
    assert listed == run
    assert len(run[0]) == 1


def test_without_a_stack_the_list_is_of_what_the_site_declares(
    configurations: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--site", "mi300x", "--output", str(tmp_path / "out")]
    assert "no delivery available" in busbar(*words)
    assert "no delivery 'spack' available" in busbar(*words, "--list", "--delivery", "spack")
    assert configurations == []
    assert busbar(*words, "--list") == "enough is known; stop"
    assert (
        "nothing can run on this machine, listing what site.yaml declares: "
    ) in capsys.readouterr().err
    ((environments, *_),) = configurations
    assert len(environments) > 1
