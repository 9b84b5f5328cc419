# SPDX-License-Identifier: MIT
"""Five nights of a cluster: the link of a node is slow from the third on. Prints what was found.

``five_nights.py DIR`` starts the lab (root; see ci/lab/up), runs ``busbar check --nodes all`` for
each night between all pairs of nodes, and writes DIR/report for the last one. Every step is the
command that an operator types. It fails unless the slow node, and nothing else, is named on the
third night, as new, and is shown on the page with its remedy and its command. It takes some six
minutes on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from busbar.terminal import stdout

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "ci" / "lab"
out = stdout()
NIGHTS = 5
SLOW_FROM = 3
NODE, RATE = "n2", "300mbit"
SITE = """\
name: five-nights
description: two cores for each of four nodes
family: generic
scheduler: slurm
partitions:
  - {name: lab, node_type: node, launcher: srun, nodes: 4}
node_types:
  node: {cores: 2}
deliveries:
  - {kind: wheels, stack: host}
"""


def run(*words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the checkout, show what it says, and return it."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, env=os.environ | more
    )
    sys.stderr.write(done.stderr)
    return done


def busbar(*words: object, lab: Path | None = None, history: Path) -> str:
    """Run busbar, on the head of the lab if there is one, and return what it prints."""
    inside = [LAB / "run", lab] if lab else []
    done = run(
        *(*inside, sys.executable, "-m", "busbar", *words),
        BUSBAR_HISTORY=str(history),
        OMPI_MCA_mpi_yield_when_idle="1",
    )
    return done.stdout


def night(number: int, lab: Path, directory: Path) -> dict[str, Any]:
    """Return the document of one night."""
    output = directory / f"night{number}"
    text = busbar(
        *("check", "--json", "--site", directory / "five-nights", "--output", output),
        *("-c", ROOT / "reframe_checks/fabric_ucx.py", "-n", "fabric_ucx_nodes"),
        *("--nodes", "all"),
        lab=lab,
        history=directory / "history",
    )
    document: dict[str, Any] = json.loads(text)
    accused = {row["where"] for row in document["results"] if row["verdict"] == "degraded"}
    out.line(f"night {number}: {document['verdict']}, accused: {', '.join(accused) or 'nobody'}")
    expected = {NODE} if number >= SLOW_FROM else set()
    if accused != expected:
        sys.exit(f"night {number}: {accused} is accused, not {expected}")
    return document


def pages(directory: Path) -> None:
    """Write and examine the pages of the night on which it became slow, and of the last one."""
    for number in (SLOW_FROM, NIGHTS):
        results = [directory / f"night{n}/results.json" for n in range(1, number + 1)]
        output = directory / f"report{number}"
        text = busbar(
            *("report", *results, "--site", directory / "five-nights", "--output", output),
            "--summary",
            history=directory / "history",
        )
        out.text(text)
        page = (output / "index.html").read_text()
        wanted = [NODE, "busbar check --site five-nights", "--nodelist"]
        wanted += ['<span class="tag">new</span>'] if number == SLOW_FROM else []
        if missing := [word for word in wanted if word not in page]:
            sys.exit(f"{output}/index.html lacks {missing}")


def main(directory: Path) -> None:
    """Run the nights."""
    directory.mkdir(parents=True)
    site = directory / "five-nights"
    site.mkdir()
    (site / "site.yaml").write_text(SITE)
    shutil.copy(ROOT / "site/local/reframe.py", site)
    lab = directory / "lab"
    subprocess.run([LAB / "up", lab], check=True)
    try:
        for number in range(1, NIGHTS + 1):
            if number == SLOW_FROM:
                subprocess.run([LAB / "shape", lab, NODE, RATE], check=True)
            night(number, lab, directory)
    finally:
        subprocess.run([LAB / "down", lab], check=True)
    out.text(busbar("history", "list", history=directory / "history"))
    pages(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
