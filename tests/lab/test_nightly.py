# SPDX-License-Identifier: MIT
"""``busbar nightly`` on four nodes, with real jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .common import LAB, ROOT

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(900)]
GOOD, BAD = ("n1", "n2", "n3"), "n4"
SITE = """\
name: nights
description: four nodes of the lab, which need a file system
family: generic
scheduler: slurm
partitions:
  - {{name: lab, node_type: node, launcher: srun, nodes: 4}}
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
    site = tmp_path / "nights"
    site.mkdir()
    (site / "site.yaml").write_text(SITE.format(scratch=scratch))
    shutil.copy(ROOT / "site" / "local" / "reframe.py", site)
    yield site
    for node in GOOD:
        subprocess.run([LAB / "run", "-n", node, lab, "umount", scratch], check=True)


def test_a_bad_node_does_not_fail_the_others_and_a_second_start_is_refused(
    lab: Path, site: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    words = [*(LAB / "run", lab, sys.executable, "-m", "busbar", "nightly", "--json")]
    words += ["--site", site, "--output", output, "--sample", "0", "--max-hours", "0.2"]
    command = [str(word) for word in words]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "BUSBAR_HISTORY": str(tmp_path / "history"),
    }
    log = tmp_path / "log"
    with log.open("w") as errors:
        night = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=environment
        )
    try:
        for _ in range(300):
            if "gate: " in log.read_text() or night.poll() is not None:
                break
            time.sleep(0.1)
        second = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment
        )
        text, _ = night.communicate(timeout=840)
    finally:
        night.kill()
    assert second.returncode == 2
    assert "another run uses this directory (process " in second.stderr
    assert len(second.stderr.splitlines()) == 1
    document = json.loads(text)
    gate, sweep, check = document["stages"]
    assert (night.returncode, gate["verdict"], document["left_out"]) == (1, "failed", [BAD]), text
    (bad,) = (each for each in gate["findings"] if each["where"] == BAD)
    assert "[node_problem] mount " in bad["message"]
    assert sweep["nodes"] == check["nodes"] == list(GOOD)
    assert sweep["verdict"] == "unjudged", sweep
    results = json.loads((Path(document["output"]) / "check" / "results.json").read_text())
    measured = {
        node for row in results["results"] if row["gb_per_s"] for node in row["where"].split(",")
    }
    assert measured == set(GOOD), log.read_text()
    assert check["verdict"] not in ("failed", "not run"), check
    assert Path(document["report"]).is_file(), log.read_text()
