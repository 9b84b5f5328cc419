# SPDX-License-Identifier: MIT
"""``busbar certify`` on four nodes: a slow link, its repair, and interruptions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.said import ran

from .common import ROOT
from .fleet import RATE, Fleet

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
CONTRACT = f"""\
site: {{site}}
clauses:
  - require: gate
  - require: sweep
    times: 2
    at_least: {RATE / 8000} GB/s
  - require: check
    check: gpu_aware
  - require: same
    facts: {{{{kernel: "", mpi: ""}}}}
"""


class Acceptance:
    """One record of the fleet."""

    def __init__(self, fleet: Fleet, directory: Path) -> None:
        self.fleet, self.directory = fleet, directory / "record"
        self.contract = directory / "contract.yaml"
        self.contract.write_text(CONTRACT.format(site=fleet.directory / "fleet"))

    def run(self, *options: object) -> tuple[int, dict[str, object]]:
        words = ("certify", "run", "--json", "--contract", self.contract, *options)
        done = self.on_head(*words, "--output", self.directory)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["predicate"]

    def on_head(self, *words: object) -> subprocess.CompletedProcess[str]:
        command = [ROOT / "ci" / "lab" / "run", self.fleet.lab, sys.executable, "-m", "busbar"]
        return ran(*command, *words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})

    @property
    def works(self) -> list[tuple[str, tuple[str, ...]]]:
        """Kind and nodes of each run."""
        files = sorted((self.directory / "runs").glob("*/run.json"))
        runs = [json.loads(file.read_text()) for file in files]
        return [(run["kind"], tuple(run["nodes"])) for run in runs]


@pytest.fixture(scope="module")
def fleet(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet.start(tmp_path_factory.mktemp("certify"), 1)
    yield fleet
    fleet.stop()


def test_a_slow_link_is_refused_and_its_repair_granted(fleet: Fleet, tmp_path: Path) -> None:
    acceptance = Acceptance(fleet, tmp_path)
    with fleet.slow(("n3", 0)):
        status, found = acceptance.run()
    assert status == 1
    assert found["sentence"].startswith("not accepted: ")
    assert "n3" in found["clauses"][1]["why"]
    assert acceptance.on_head("certify", "verify", acceptance.directory).returncode == 3
    before = acceptance.works
    status, found = acceptance.run("--repaired", "n3")
    assert status == 0, found["sentence"]
    assert found["sentence"].startswith("accepted: ")
    assert [event["node"] for event in found["account"]] == ["n3"]
    repeated = acceptance.works[len(before) :]
    assert [kind for kind, _ in repeated] == ["repaired", "gate", "sweep", "sweep", "check"]
    assert {nodes for kind, nodes in repeated if kind in ("gate", "check")} == {("n3",)}
    assert {len(nodes) for kind, nodes in repeated if kind == "sweep"} == {4}
    assert acceptance.on_head("certify", "verify", acceptance.directory).returncode == 3


@pytest.mark.long
def test_an_acceptance_that_was_killed_goes_on(fleet: Fleet, tmp_path: Path) -> None:
    """What had ended is kept as it is, and counts once."""
    acceptance = Acceptance(fleet, tmp_path)
    words = ("certify", "run", "--contract", acceptance.contract)
    command = [ROOT / "ci" / "lab" / "run", fleet.lab, sys.executable, "-m", "busbar", *words]
    process = subprocess.Popen(
        [str(word) for word in (*command, "--output", acceptance.directory)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    while not (acceptance.directory / "runs" / "0003-sweep").exists():
        time.sleep(0.2)
    fleet.run("pkill", "-KILL", "-o", "-f", "busbar certify run")
    process.wait(60)
    before = {f: f.read_bytes() for f in acceptance.directory.glob("runs/*/run.json")}
    assert len(before) >= 2
    status, end = 2, time.monotonic() + 60
    while status == 2 and time.monotonic() < end:  # the last jobs of the killed one are ending
        status = acceptance.on_head(*words, "--output", acceptance.directory).returncode
    assert status == 0
    assert [kind for kind, _ in acceptance.works] == ["begun", "gate", "sweep", "sweep", "check"]
    assert all(file.read_bytes() == text for file, text in before.items())
