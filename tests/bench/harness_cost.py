# SPDX-License-Identifier: MIT
"""Times the quick set through ``busbar check`` and its jobs bare; prints both and the ratio.

A first run, whose time does not count, leaves the jobs and fills the caches of the system: else
whoever comes second would be faster. The builds of our own programs are part of the run and are
told apart, since the bare jobs find them built.

Options are handed to ``busbar check``: ``harness_cost.py --prefix DIR``. The job scripts are those
that the run has left; each holds the very launches, without ReFrame and without judgement. Without
a GPU nothing but start-up is seen, so only a machine with GPUs is held to the bar.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BAR = 1.15
_JOB = "rfm_job.sh"


def checked(output: Path, options: list[str]) -> tuple[float, dict[str, Any]]:
    """Seconds and document of the whole run; what it staged stays."""
    command = [sys.executable, "-m", "busbar", "check", "--json", "--output", str(output)]
    begin = time.monotonic()
    done = subprocess.run(
        [*command, "--keep-stage-files", "-t", "gate", *options],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begin
    if not done.stdout:
        sys.exit("busbar check said nothing; its error is above")
    return seconds, json.loads(done.stdout)


def builds(output: Path) -> float:
    """Seconds that the run spent on compiling."""
    (run,) = json.loads((output / "reframe.json").read_text())["runs"]
    return sum(case["time_compile"] for case in run["testcases"] if case["fixture"])


def bare(output: Path) -> dict[str, float]:
    """Seconds of each job script, one after the other."""
    taken = {}
    for script in sorted((output / "reframe" / "stage").rglob(_JOB)):
        if "#SBATCH" in script.read_text():
            sys.exit("its jobs wait for Slurm; take a site without a scheduler (--site)")
        begin = time.monotonic()
        done = subprocess.run(
            ["bash", _JOB], cwd=script.parent, capture_output=True, text=True, check=False
        )
        taken[script.parent.name] = time.monotonic() - begin
        if done.returncode:
            sys.exit(f"{script} ends with {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
    return taken


def tell(document: dict[str, Any]) -> None:
    """What did not pass: its repetition costs time too."""
    said = [row["message"] for row in document["results"] if row["verdict"] != "pass"]
    said += [n["summary"] for n in document["notes"] if n["id"] == "not-repeated"]
    for message in said:
        sys.stdout.write(f"{document['verdict']}: {message}\n")


def main() -> None:
    """Prints the times; fails on a machine with GPUs where the harness costs more than the bar."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory)
        _, document = checked(output, sys.argv[1:])
        tell(document)
        if document["verdict"] == "failed":
            sys.exit("the run failed; nothing to compare")
        jobs = bare(output)
        if not jobs:
            sys.exit("the run has left no job script")
        whole, document = checked(output, sys.argv[1:])
        tell(document)
        built = builds(output)

    total = sum(jobs.values())
    for name, seconds in sorted(jobs.items(), key=lambda job: -job[1]):
        sys.stdout.write(f"{seconds:8.1f} s  {name}\n")
    ratio = whole / total
    on_gpu = bool(document["versions"]["gpu_driver"])
    sys.stdout.write(
        f"busbar check {whole:.1f} s ({built:.1f} of it builds), the same {len(jobs)} jobs bare"
        f" {total:.1f} s: {ratio:.2f}"
        + (f" (bar {BAR})" if on_gpu else ", mostly start-up: the bar is for GPUs")
        + "\n"
    )
    if on_gpu and ratio > BAR:
        sys.exit(1)


if __name__ == "__main__":
    main()
