# SPDX-License-Identifier: MIT
"""Measure the history over half a year in which a driver update changes half of the nodes.

``python -m tests.bench.updates`` prints two tables of docs/history.md. The first is of half-years
of 50 nodes with four series each, without and with an update that takes 4 % from two series of 25
nodes in one night. Other jobs lower single nights, and of two nodes a series declines by 10 %
within 90 nights. The second has the nights that steps take by their size.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from busbar.history.events import changes_of, find_events
from busbar.history.model import HistoryKey, NightSeries
from busbar.history.statistic import SERIES, common_noise
from busbar.terminal import stdout
from tests.bench.simulate_nights import simulate

DAY_S = np.float64(86400)
NIGHTS, UPDATE, DRIFT = 183, 110, range(60, 150)
NODES = 50
METRICS = ("busbw", "bandwidth", "rate", "copy")
UPDATED = METRICS[:2]
SIZES = (1, 2, 3, 4, 5, 8)
WITHIN = (4, 5, 7, 10, 14, 20)
BEFORE = 180


def half_year(seed: int, *, update: bool) -> tuple[list[NightSeries], set[HistoryKey]]:
    """Return all series, and those that decline; the update changes no other reading."""
    draw = np.random.default_rng(seed)
    noise = simulate("depths", NODES * len(METRICS), NIGHTS, draw)
    noise += draw.normal(0, 0.3, NIGHTS)  # what all nodes share
    half = set(draw.permutation(NODES)[: NODES // 2].tolist())
    declining = {(int(node), int(draw.integers(4))) for node in draw.permutation(NODES)[:2]}
    days = np.arange(NIGHTS, dtype=np.int64)
    series, keys = [], set()
    for node in range(NODES):
        for at, metric in enumerate(METRICS):
            values = noise[node * len(METRICS) + at].astype(float)
            key = HistoryKey("alpha", "", f"n{node}", "check", metric, "GB/s")
            if (node, at) in declining:
                values -= np.interp(days, (DRIFT[0], DRIFT[-1]), (0, 10))
                keys.add(key)
            new = (days >= UPDATE) & (node in half) & update
            if metric in UPDATED:
                values -= 4 * new
            series.append(NightSeries(key, days * DAY_S, values, 1 + new, days))
    return series, keys


def counted(seeds: range, *, update: bool) -> Counter[str]:
    """Return how many changes of each kind the history reports."""
    found: Counter[str] = Counter()
    for seed in seeds:
        series, declining = half_year(seed, update=update)
        moved = {each.key for each in series if update and len(set(each.provenance)) > 1}
        moved = {key for key in moved if key.metric in UPDATED}
        events = find_events(series, {1: {"driver": "570"}, 2: {"driver": "580"}})
        first = max(events, key=lambda event: len(event.changes), default=None)
        found["first"] += bool(
            first and first.differences and first.differences[0].name == "driver"
        )
        changes = [change for event in events for change in event.changes]
        drifts = {change.key for change in changes if change.until is not None}
        steps = {change.key for change in changes if change.until is None}
        found["declines"] += len(declining)
        found["declines found"] += len(declining & (drifts | steps))
        found["as drifts"] += len(declining & drifts)
        found["false drifts"] += len(drifts - declining)
        found["updated"] += len(moved)
        found["updated found"] += len(steps & moved)
        found["false steps"] += len(steps - moved - declining)
    return found


def nights_of_steps(size: float, kind: str, count: int) -> list[int]:
    """Return after how many nights steps are certain; those after 20 are left out."""
    draw = np.random.default_rng([int(size * 10), len(kind)])
    days = np.arange(BEFORE + max(WITHIN))
    rows = simulate(kind, count, len(days), draw).astype(float)
    rows[:, BEFORE:] -= size
    noise = common_noise([row[:BEFORE] for row in rows[:100]], [days[:BEFORE]] * len(rows[:100]))
    found = []
    for row in rows:
        key = HistoryKey("alpha", "", "n1", "check", "busbw", "GB/s")
        series = NightSeries(key, days * DAY_S, row, np.zeros_like(days), days)
        changes = [c for c in changes_of(series, SERIES, noise) if c.found >= BEFORE * DAY_S]
        found += [int(changes[0].found / DAY_S) - BEFORE + 1] if changes else []
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=int, default=20, help="half-years")
    parser.add_argument("--steps", type=int, default=300, help="steps of each size")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    args = parser.parse_args()
    seeds, out = range(args.first, args.first + args.years), stdout()
    out.line(
        "| half-years | false drifts | false steps | declines found (as drifts) |"
        " updated series found | driver first |"
    )
    out.line("|---|---|---|---|---|---|")
    for update in (False, True):
        found = counted(seeds, update=update)
        out.line(
            f"| {args.years} {'with' if update else 'without'} the update |"
            f" {found['false drifts']} | {found['false steps']} |"
            f" {found['declines found']} of {found['declines']} ({found['as drifts']}) |"
            f" {found['updated found']} of {found['updated']} |"
            f" {found['first'] if update else ''} |"
        )
    within = " | ".join(f"{nights} nights" for nights in WITHIN)
    out.line("")
    out.line(f"| noise | step | {within} |")
    out.line(f"|---|---|{'---|' * len(WITHIN)}")
    for kind in ("normal", "depths", "ar"):
        for size in SIZES:
            nights = nights_of_steps(size, kind, args.steps)
            shares = [sum(n <= most for n in nights) / args.steps for most in WITHIN]
            out.line(f"| {kind} | {size} % | {' | '.join(f'{s:.0%}' for s in shares)} |")


if __name__ == "__main__":
    main()
