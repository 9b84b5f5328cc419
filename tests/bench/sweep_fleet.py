# SPDX-License-Identifier: MIT
"""Measure how well a sweep of 10,000 nodes localises, and print the table of docs/sweep.md.

``python tests/bench/sweep_fleet.py [SEEDS]``; 100 seeds take half an hour of one core.
"""

from __future__ import annotations

import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from busbar.sweep.simulate import Scenario, simulate

BASE = Scenario(nodes=10_000, bad=10)
SCENARIOS: dict[str, dict[str, Any]] = {
    "10 nodes 20 % slow": {},
    "none": {"bad": 0},
    "100 nodes 20 % slow": {"bad": 100},
    "10 nodes 15 % slow": {"slowdown": 0.15},
    "10 nodes 20 % slow, noise of Student's t3": {"tail": "t3"},
    "10 nodes 15 % slow, noise of Student's t3": {"tail": "t3", "slowdown": 0.15},
    "10 nodes 20 % slow, lognormal noise": {"tail": "lognormal"},
    "10 nodes 20 % slow, and a slow leaf of 32": {"slow_leaf": True},
    "10 of 20,000 NICs 20 % slow": {"kind": "nic"},
    "10 links 20 % slow": {"kind": "link"},
    "10 of 313 uplinks 20 % slow": {"kind": "uplink"},
}
HEAD = """\
| faults | seeds | recall | worst seed | falsely accused | rounds of the second pass | plan, s | analyse, s | GB |
|---|---|---|---|---|---|---|---|---|"""  # noqa: E501 - a row of a table
LEAST_RECALL = 0.99
MOST_SECONDS = 10.0
MOST_GB = 1.0


def measure(label: str, seeds: int) -> tuple[str, bool]:
    """Return a row of the table, and whether it meets the bars."""
    found = [
        simulate(Scenario(**{**vars(BASE), **SCENARIOS[label], "seed": n})) for n in range(seeds)
    ]
    recalls = [one.recall for one in found]
    mean, least = sum(recalls) / seeds, min(recalls)
    false = sum(one.false_accusations for one in found)
    rounds = max(one.second_pass_rounds for one in found)
    plan_s, analyse_s = (
        max(getattr(one, key) for one in found) for key in ("plan_s", "analyse_s")
    )
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    row = (
        f"| {label} | {seeds} | {mean:.4f} | {least:.2f} | {false} | {rounds} | {plan_s:.1f} |"
        f" {analyse_s:.1f} | {gigabytes:.2f} |"
    )
    within = max(plan_s, analyse_s) < MOST_SECONDS and gigabytes < MOST_GB
    return row, mean >= LEAST_RECALL and not false and within


def main(seeds: int) -> int:
    """Print the table; return 1 if a scenario misses a bar."""
    print(HEAD)  # noqa: T201 - its output
    passed = True
    # A process for each scenario, so that each has its own memory.
    with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as pool:
        for row, good in pool.map(measure, SCENARIOS, [seeds] * len(SCENARIOS)):
            print(row, flush=True)  # noqa: T201 - as above
            passed &= good
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
