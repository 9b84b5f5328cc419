# SPDX-License-Identifier: MIT
"""A link becomes slow: real runs, whose times are moved apart by a day each.

``python -m tests.bench.slow_link DIR`` starts the lab (root; see ci/lab/up) with links of 1
Gbit/s. ReFrame runs ``fabric_ucx_nodes`` 20 times between two pairs of nodes; then a link of one
pair is limited to 700 Mbit/s, and it runs 5 times more. Every reading is what ``ucx_perftest``
measured. Only the times are not those of the runs, which are seconds apart: the reports that
``busbar history import`` reads say that run k was on day k. It fails unless ``busbar history
changes`` finds the change of this night, within 5 nights, for this pair and no other, and the page
shows it. It takes some eight minutes on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from busbar.terminal import stdout
from tests.bench.five_nights import LAB, ROOT, SITE, busbar

PAIRS = ("n1,n2", "n3,n4")
SLOW = "n2"
QUIET, AFTER = 20, 5
RATE, SLOW_RATE = "1gbit", "700mbit"
FIRST = 1_790_000_000.0
DAY_S = 86400
out = stdout()


def measure(lab: Path, directory: Path, name: str, runs: int) -> list[Path]:
    """Run the check on both pairs at once; return the reports of ReFrame."""
    running, reports = [], []
    for pair in PAIRS:
        reports.append(directory / f"{name}-{pair.replace(',', '-')}.json")
        prefix = directory / "reframe" / reports[-1].stem
        words = [LAB / "run", lab, Path(sys.executable).with_name("reframe")]
        words += ["-C", directory / "five-nights/reframe.py", "-n", "fabric_ucx_nodes$"]
        words += ["-c", ROOT / "reframe_checks/fabric_ucx.py", f"--repeat={runs}", "-r"]
        words += ["-J", f"nodelist={pair}", "--prefix", prefix, "--exec-policy=serial"]
        words += ["--report-file", reports[-1]]
        variables = os.environ | {"BUSBAR_HISTORY": str(prefix / "history")}
        running.append(subprocess.Popen(list(map(str, words)), cwd=directory, env=variables))
    statuses = [each.wait() for each in running]
    if any(statuses):
        sys.exit(f"{name}: ReFrame failed")
    return reports


def move(report: Path, first_day: int) -> int:
    """Say in a report that its run k was on day k; return how many runs it has."""
    document: dict[str, Any] = json.loads(report.read_text())
    cases = [case for run in document["runs"] for case in run["testcases"]]
    cases.sort(key=lambda case: case["job_completion_time_unix"])
    for day, case in enumerate(cases, first_day):
        case["job_completion_time_unix"] = FIRST + day * DAY_S
    report.write_text(json.dumps(document))
    return len(cases)


def main(directory: Path) -> None:
    """Run, move, import, and examine what is found."""
    site = directory / "five-nights"
    site.mkdir(parents=True)
    (site / "site.yaml").write_text(SITE)
    shutil.copy(ROOT / "site/local/reframe.py", site)
    lab, history = directory / "lab", directory / "history"
    subprocess.run([LAB / "up", lab], check=True)
    try:
        for node in ",".join(PAIRS).split(","):
            subprocess.run([LAB / "shape", lab, node, RATE], check=True)
        before = measure(lab, directory, "before", QUIET)
        subprocess.run([LAB / "shape", lab, SLOW, SLOW_RATE], check=True)
        after = measure(lab, directory, "after", AFTER)
    finally:
        subprocess.run([LAB / "down", lab], check=True)
    counts = Counter(move(report, 0) for report in before)
    counts += Counter(move(report, QUIET) for report in after)
    if counts != {QUIET: len(PAIRS), AFTER: len(PAIRS)}:
        sys.exit(f"runs are missing: {counts}")
    out.text(busbar("history", "import", *before, *after, history=history))
    out.text(busbar("history", "changes", history=history))
    found = json.loads(busbar("history", "changes", "--json", history=history))
    moved = {change["node"] for event in found["events"] for change in event["changes"]}
    nights = {change["since"] for event in found["events"] for change in event["changes"]}
    if moved != {next(pair for pair in PAIRS if SLOW in pair)} or len(nights) != 1:
        sys.exit(f"{moved} changed on {nights}")
    pages = directory / "pages"
    busbar("report", "--site", "five-nights", "--output", pages, history=history)
    page = (pages / "index.html").read_text()
    if missing := [word for word in ("What changed", *moved) if word not in page]:
        sys.exit(f"{pages}/index.html lacks {missing}")
    out.line(f"{pages}/index.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
