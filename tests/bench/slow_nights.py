# SPDX-License-Identifier: MIT
"""The link of a node becomes slow in a cluster of Slurm. Prints who named it, and when.

``python -m tests.bench.slow_nights DIR`` starts the lab (root; see ci/lab/up), whose links ``tc``
shapes, and runs ``busbar check --nodelist all`` for 25 nights. From the 21st on, the link of one
node has half its rate. Every step is the command that an operator types, and every reading is what
it measured. Only the times are not those of the runs, which are half a minute apart: before
``busbar history import``, run k is dated as night k, as the history joins the readings of a day.

Why so many: two nights before a change and three after it are one of ten ways to divide five
nights, so no statistic of these alone can have less than one false alarm in ten series. The
history needs 20 nights before a change, and 5 after one of this size, as three slow nights are
none. The nodes of one night judge each other without a past.

It fails unless

- ``busbar check`` accuses nobody before, and this node from the first slow night on,
- ``busbar history changes`` names nothing before its fifth slow night, and then since when, the
  pairs with this node and no others, and the node as what they share,
- ``busbar report`` shows both, with the command that repeats the check.

It takes some twelve minutes on two cores. Started again, it continues after the last night.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from busbar.terminal import stdout

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "ci" / "lab"
QUIET, SLOW, NEEDED = 20, 5, 5
FIRST = datetime(2026, 9, 1, 2, tzinfo=UTC)
NODES, NODE = ("n1", "n2", "n3", "n4"), "n2"
RATE, SLOW_RATE = "300mbit", "150mbit"
SITE = """\
name: slow-nights
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
out = stdout()


def busbar(history: Path, *words: object, inside: tuple[object, ...] = ()) -> str:
    """Run busbar, with what it needs in front of it, and return what it prints."""
    command = map(str, (*inside, sys.executable, "-m", "busbar", *words))
    variables = {"BUSBAR_HISTORY": str(history), "OMPI_MCA_mpi_yield_when_idle": "1"}
    return subprocess.run(
        list(command), check=False, stdout=-1, text=True, cwd=ROOT, env=os.environ | variables
    ).stdout


def measured(number: int, lab: Path, directory: Path) -> Path:
    """Measure a night if that is left to do, and return its results, dated as that night."""
    dated = directory / f"night{number:02}.json"
    if not dated.exists():
        for node in NODES:
            rate = SLOW_RATE if number > QUIET and node == NODE else RATE
            subprocess.run([LAB / "shape", lab, node, rate], check=True)
        words = ("check", "--json", "--nodelist", "all", "--site", directory / "slow-nights")
        words += ("-n", "^fabric_ucx_nodes$", "--output", directory / "runs" / str(number))
        text = busbar(directory / "sessions", *words, inside=(LAB / "run", lab))
        document = json.loads(text) | {"time": night(number)}
        dated.write_text(json.dumps(document))
    return dated


def night(number: int) -> str:
    """Return the time of a night as documents have it."""
    return (FIRST + timedelta(days=number)).isoformat()


def judged(number: int, dated: Path) -> None:
    """Examine whom the check of one night accuses."""
    document: dict[str, Any] = json.loads(dated.read_text())
    accused = {row["where"] for row in document["results"] if row["verdict"] == "degraded"}
    readings = [row["gb_per_s"] for row in document["results"] if "," in row["where"]]
    rates = f"{min(readings):.4g} to {max(readings):.4g} GB/s"
    out.line(f"night {number}: {rates}, accused: {', '.join(accused) or 'nobody'}")
    if accused != ({NODE} if number > QUIET else set()):
        sys.exit(f"night {number}: {accused} is accused")


def changed(number: int, history: Path) -> None:
    """Examine what the history says after a night."""
    events = json.loads(busbar(history, "history", "changes", "--json"))["events"]
    if number < QUIET + NEEDED:
        if events:
            sys.exit(f"night {number}: {events}")
        return
    (event,) = events
    moved = {row["node"] for row in event["changes"]}
    out.line(f"night {number}: since {event['since']}: {', '.join(sorted(moved))}")
    pairs = {"n1,n2", "n2,n3"}
    if (moved, event["since"], event["shared"]) != (pairs, night(QUIET + 1), [f"node {NODE}"]):
        sys.exit(f"night {number}: {event}")


def pages(directory: Path, history: Path) -> None:
    """Write and examine the page of the first slow night, and that of the last."""
    for number in (QUIET + 1, QUIET + SLOW):
        results = [directory / f"night{each:02}.json" for each in (number - 1, number)]
        words = ("report", *results, "--site", directory / "slow-nights")
        output = directory / f"report{number}"
        out.text(busbar(history, *words, "--output", output, "--mail"))
        page = (output / "index.html").read_text()
        wanted = [f"{NODE} reaches", "busbar check --site", f"--nodelist {NODE}"]
        wanted.append("What changed" if number > QUIET + 1 else '<span class="tag">new</span>')
        if missing := [word for word in wanted if word not in page]:
            sys.exit(f"{output}/index.html lacks {missing}")


def main(directory: Path) -> None:
    """Run the nights."""
    site, lab, history = directory / "slow-nights", directory / "lab", directory / "history"
    site.mkdir(parents=True, exist_ok=True)
    (site / "site.yaml").write_text(SITE)
    shutil.copy(ROOT / "site/local/reframe.py", site)
    shutil.rmtree(history, ignore_errors=True)
    subprocess.run([LAB / "up", lab], check=True, stdout=sys.stderr)
    try:
        for number in range(1, QUIET + SLOW + 1):
            dated = measured(number, lab, directory)
            judged(number, dated)
            busbar(history, "history", "import", dated)
            changed(number, history)
    finally:
        subprocess.run([LAB / "down", lab], check=True)
    out.text(busbar(history, "history", "changes"))
    pages(directory, history)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
