# SPDX-License-Identifier: MIT
"""Measure how well a sweep localises, and print the tables of docs/sweep-method.md.

``python -m tests.bench.sweep_fleet [SEEDS]``; 100 seeds take half an hour of one core.
"""

from __future__ import annotations

import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from .sweep_simulation import Scenario, simulate

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
_EIGHT: dict[str, Any] = {"nodes": 8, "leaf_size": 4, "rounds": 7, "bad": 1}
_SIXTY_FOUR: dict[str, Any] = {"nodes": 64, "leaf_size": 16, "bad": 1}
SMALL: dict[str, dict[str, Any]] = {
    "none of 8 nodes": {**_EIGHT, "bad": 0},
    "1 of 8 nodes 20 % slow": _EIGHT,
    "1 of 8 nodes 20 % slow, noise of Student's t3": {**_EIGHT, "tail": "t3"},
    "1 of 16 NICs of 8 nodes 20 % slow": {**_EIGHT, "kind": "nic"},
    "none of 64 nodes, noise of Student's t3": {**_SIXTY_FOUR, "bad": 0, "tail": "t3"},
    "1 of 64 nodes 20 % slow": _SIXTY_FOUR,
    "1 link between 64 nodes 20 % slow": {**_SIXTY_FOUR, "kind": "link"},
    "1 of 4 uplinks of 64 nodes 20 % slow": {**_SIXTY_FOUR, "kind": "uplink"},
}
"""Fleets in which few readings decide: ``MORE`` times as many seeds."""
MORE = 20
HEAD = """\
| faults | seeds | recall | worst seed | falsely accused | further rounds | plan, s | analyse, s | GB |
|---|---|---|---|---|---|---|---|---|"""  # noqa: E501 - a row of a table
LEAST_RECALL = 0.99
MOST_SECONDS = 10.0
MOST_GB = 1.0


def measure(label: str, seeds: int) -> tuple[str, bool]:
    """Return a row of the table, and whether it meets the bars."""
    small = label in SMALL
    seeds *= MORE if small else 1
    changes = SMALL[label] if small else SCENARIOS[label]
    found = [simulate(Scenario(**{**vars(BASE), **changes, "seed": n})) for n in range(seeds)]
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
    allowed = seeds / 1000 if small else 0  # by the rule, one in a thousand sweeps
    return row, mean >= LEAST_RECALL and false <= allowed and within


def main(seeds: int) -> int:
    """Print the table; return 1 if a scenario misses a bar."""
    print(HEAD)  # noqa: T201 - its output
    passed = True
    # A process for each scenario, so that each has its own memory.
    with ProcessPoolExecutor(2, get_context("spawn"), max_tasks_per_child=1) as pool:
        labels = [*SMALL, *SCENARIOS]
        for row, good in pool.map(measure, labels, [seeds] * len(labels)):
            print(row, flush=True)  # noqa: T201 - as above
            passed &= good
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
