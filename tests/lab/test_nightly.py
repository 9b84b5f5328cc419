# SPDX-License-Identifier: MIT
"""``busbar nightly`` on four nodes, with real jobs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files import executable
from tests.said import ran

from .common import LAB, ROOT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
GOOD, BAD = ("n1", "n2", "n3"), "n4"
SITE = """\
name: nights
description: four nodes of the lab, which need a file system
family: generic
scheduler: slurm
partitions:
  - {{name: lab, node_type: node, launcher: srun, nodes: 4{more}}}
node_types:
  node: {{cores: 2}}
deliveries:
  - {{kind: wheels, stack: host}}
gate:
  checks: {{mount: {{mode: enforce}}}}
  mounts:
    - {{path: {scratch}, type: tmpfs}}
"""


@pytest.fixture
def site(lab: Path, tmp_path: Path) -> Iterator[Path]:
    """A site whose file system is missing on one node."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for node in GOOD:
        words = [LAB / "run", "-n", node, lab, "mount", "-t", "tmpfs", "none", scratch]
        subprocess.run(words, check=True)
    yield _site(tmp_path / "nights", scratch)
    for node in GOOD:
        subprocess.run([LAB / "run", "-n", node, lab, "umount", scratch], check=True)


def _site(site: Path, scratch: Path, more: str = "") -> Path:
    site.mkdir(parents=True)
    (site / "site.yaml").write_text(SITE.format(scratch=scratch, more=more))
    shutil.copy(ROOT / "site" / "local" / "reframe.py", site)
    return site


def _environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "BUSBAR_HISTORY": str(tmp_path / "history"),
    }


def _on_head(lab: Path, tmp_path: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return ran(LAB / "run", lab, *words, cwd=ROOT, env=_environment(tmp_path))


@pytest.mark.long
def test_a_bad_node_does_not_fail_the_others(lab: Path, site: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = [*(LAB / "run", lab, sys.executable, "-m", "busbar", "nightly", "--json")]
    words += ["--site", site, "--output", output, "--sample", "0", "--max-hours", "0.2"]
    command = [str(word) for word in words]
    environment = _environment(tmp_path)
    night = ran(*command, cwd=ROOT, env=environment)
    document = json.loads(night.stdout)
    gate, sweep, check = document["stages"]
    assert (night.returncode, gate["verdict"], document["left_out"]) == (1, "failed", [BAD]), (
        night.stdout
    )
    (bad,) = (each for each in gate["findings"] if each["where"] == BAD)
    assert "[node_problem] mount " in bad["message"]
    assert sweep["nodes"] == check["nodes"] == list(GOOD)
    assert sweep["verdict"] == "unjudged", sweep
    results = json.loads((Path(document["output"]) / "check" / "results.json").read_text())
    measured = {
        node for row in results["results"] if row["gb_per_s"] for node in row["where"].split(",")
    }
    assert measured == set(GOOD), night.stderr
    assert check["verdict"] not in ("failed", "not run"), check
    assert Path(document["report"]).is_file(), night.stderr


ANSWERS_S = 120
ACTIONS = """
nodes:
  commands:
    drain: [{program}, "{{node}}", DRAIN, "{{reason}}"]
    resume: [{program}, "{{node}}", RESUME, ""]
"""


def test_a_night_drains_a_node_and_its_record_resumes_it(
    lab: Path, site: Path, tmp_path: Path
) -> None:
    """By the commands of the site; the gate itself drains and resumes nothing here."""
    program = executable(
        tmp_path / "action", 'scontrol update NodeName="$1" State="$2" ${3:+Reason="$3"}'
    )
    with (site / "site.yaml").open("a") as file:
        file.write(ACTIONS.format(program=program))
    busbar, place = (sys.executable, "-m", "busbar"), (f"--site={site}", "--json")
    output = f"--output={tmp_path / 'out'}"
    night = _on_head(lab, tmp_path, *busbar, "nightly", *place, output, "--stages=gate")
    states = ("sinfo", "--noheader", "--Node", f"--nodes={BAD}", "--format=%T|%E")
    drained = _on_head(lab, tmp_path, *states).stdout
    try:
        assert drained.startswith("drained|[node_problem] gate: mount "), night.stderr
        assert drained.rstrip().endswith("(busbar)")
        scratch = tmp_path / "scratch"
        subprocess.run(
            [LAB / "run", "-n", BAD, lab, "mount", "-t", "tmpfs", "none", scratch], check=True
        )
        command = [LAB / "run", "-n", BAD, lab, *busbar, "gate", *place, "--passive"]
        look = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=ROOT,
            env=_environment(tmp_path),
        )
        (tmp_path / "gate.json").write_text(look.stdout)
        added = f"--add={tmp_path / 'gate.json'}"
        shown = _on_head(lab, tmp_path, *busbar, "node", BAD, added, *place, output)
        assert f"{BAD}: resume: ran {program}" in shown.stderr
        record = json.loads(shown.stdout)["nodes"][0]
        assert [each["action"] for each in record["taken"]] == ["drain", "resume"]
        # A resumed node is "idle*" until it has answered the controller.
        until = time.monotonic() + ANSWERS_S
        while (state := _on_head(lab, tmp_path, *states).stdout).startswith("idle*"):
            assert time.monotonic() < until, state
            time.sleep(0.5)
        assert state.startswith("idle|")
    finally:
        subprocess.run([LAB / "run", "-n", BAD, lab, "umount", tmp_path / "scratch"], check=False)
        if "drain" in _on_head(lab, tmp_path, *states).stdout:
            _on_head(lab, tmp_path, "scontrol", "update", f"NodeName={BAD}", "State=RESUME")


@pytest.mark.long
def test_the_checks_of_four_nodes_take_less_time_at_once_than_one_by_one(
    lab: Path, tmp_path: Path
) -> None:
    """With ``max_jobs: 1`` the jobs run one by one."""
    seconds = {}
    tested = {}
    for name, more in {"serial": ", max_jobs: 1", "asynchronous": ""}.items():
        site = _site(tmp_path / name / "nights", tmp_path, more)
        words = ["busbar", "check", "--json", "--nodelist", "all", "--max-retries", "0"]
        words += ["-n", "^fabric_ucx$", "-n", "^gpu_aware$", "--site", site]
        begun = time.monotonic()
        done = _on_head(
            lab, tmp_path, sys.executable, "-m", *words, "--output", tmp_path / f"{name}-out"
        )
        seconds[name] = time.monotonic() - begun
        rows = json.loads(done.stdout)["results"]
        tested[name] = {(row["check"].split()[0], row["where"]) for row in rows}
    assert tested["serial"] == tested["asynchronous"]
    places = {(check, node) for check in ("fabric_ucx", "gpu_aware") for node in (*GOOD, BAD)}
    assert places <= tested["serial"]
    # docs/operations.md has the figures
    (tmp_path / "seconds.json").write_text(json.dumps(seconds))
    assert seconds["asynchronous"] < seconds["serial"]


@pytest.mark.long
def test_plain_reframe_runs_the_checks(lab: Path, tmp_path: Path) -> None:
    """The command of docs/operations.md."""
    (command,) = (
        line
        for line in (ROOT / "docs" / "operations.md").read_text().splitlines()
        if line.startswith("reframe -C site/alpha/reframe.py ")
    )
    site = _site(tmp_path / "nights", tmp_path)
    words = shlex.split(command.replace("site/alpha", str(site)).partition(" #")[0])
    report = tmp_path / "report.json"
    plain = Path(sys.executable).with_name(words[0])
    more = ("--prefix", tmp_path / "plain", "--report-file", report)
    done = _on_head(lab, tmp_path, plain, *words[1:], *more)
    (run,) = json.loads(report.read_text())["runs"]
    cases = {case["name"].split()[0]: case for case in run["testcases"]}
    assert {"memory", "link_matrix", "fabric_ucx_nodes"} <= cases.keys(), cases.keys()
    # Under load, a rate below its band is a failure of plain ReFrame.
    bad = {name for name, case in cases.items() if case["fail_phase"] not in (None, "performance")}
    assert not bad, done.stdout[-4000:]
