# SPDX-License-Identifier: MIT
"""Measure how change point statistics do on nights that another program has simulated.

``python -m tests.bench.simulate_nights DIR && python -m tests.bench.change_points DIR`` prints the
two tables of docs/history.md: some ten minutes of one core. Ranges are 95 % intervals (E. B.
Wilson, 1927). The first table is of Busbar as nights come, among series of one site, beside the
best that a method can do which knows the model (``change_points_oracle.py``). The second one is of
methods that look at a whole series with hindsight:

- asv: its step detection
- Otava: its algorithm as published (M. Fleming and others, Hunter, ICPE 2023), written anew: the
  divisions of windows of 50 nights with the largest energy distance, each tested by Student's t at
  0.1 %. It is an imitation, not Otava.
- PELT: ruptures, squared distances, penalty 3 log n
- E-divisive: the division of all nights with the largest energy distance, tested at 1 % by
  permutation (D. S. Matteson, N. A. James, 2014)
- rank: the division with the largest rank sum, tested by permutation of blocks of 5 nights

asv and ruptures need an environment of their own, with Busbar on PYTHONPATH; without them their
rows are left out. A method has found a step within 5 nights if it names a night within 5 of the
step in the series that ends with the fifth night.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from busbar.history.statistic import SERIES, Array, Noise, common_noise, scan
from busbar.terminal import stdout
from tests.bench.change_points_oracle import ORACLES

AFTER = 20
"""Nights after the step in its file."""
SOON, LATER = 5, 10
OTHERS_SERIES = 500
OTHERS_KINDS = ("normal", "dips", "ar")
_PERMUTATIONS = 99
_SMALLEST = 5
Nights = tuple[Array, NDArray[np.int64]]
out = stdout()


def nights(row: NDArray[np.float32]) -> Nights:
    """Return the readings of a series, and the days of its nights."""
    days = np.flatnonzero(~np.isnan(row))
    return row[days].astype(np.float64), days


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    z = 1.959964
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def percent(count: int, total: int) -> str:
    """Return a share and its interval: ``95.7 % (95.0 to 96.3)``."""
    low, high = wilson(count, total)
    return f"{100 * count / total:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def alarms(series: Nights, noise: Noise) -> NDArray[np.int64]:
    """Return the nights on which Busbar would have raised an alarm."""
    return np.flatnonzero(np.abs(scan(*series, SERIES, noise).score) >= 1)


def first_table(directory: Path) -> None:
    """Print the table of Busbar as nights come."""
    out.line(
        "| noise | false alarms a year | within 5 nights | best possible | within 10 nights |"
    )
    out.line("|---|---|---|---|---|")
    for file in sorted(directory.glob("*.quiet.npy")):
        kind = file.name.partition(".")[0]
        quiet = [nights(row) for row in np.load(file)]
        stepped = np.load(directory / f"{kind}.step.npy")
        step = [nights(row) for row in stepped]
        first = stepped.shape[1] - AFTER
        site = quiet[:SERIES]
        noise = common_noise([values for values, _ in site], [days for _, days in site])
        false = sum(len(alarms(series, noise)) > 0 for series in quiet)
        low, high = wilson(false, len(quiet))
        found = {SOON: 0, LATER: 0}
        for values, days in step:
            start = int((days < first).sum())
            raised = alarms((values, days), noise) - start
            for within in found:
                found[within] += bool(((raised >= 0) & (raised < within)).any())
        oracle = f"{100 * ORACLES[kind]():.0f} %" if kind in ORACLES else ""
        out.line(
            f"| {kind} | {false * SERIES / len(quiet):.1f}"
            f" ({low * SERIES:.1f} to {high * SERIES:.1f}) | {percent(found[SOON], len(step))}"
            f" | {oracle} | {100 * found[LATER] / len(step):.0f} % |"
        )


def rank(values: Array) -> Sequence[int]:
    """Return the division with the largest rank sum, if permuted blocks of 5 nights have less."""

    def largest(series: Array) -> tuple[float, int]:
        n = len(series)
        left = np.arange(_SMALLEST, n - _SMALLEST + 1)
        sums = np.cumsum(np.argsort(np.argsort(series)) - (n - 1) / 2)[left - 1]
        scores = np.abs(sums) / np.sqrt(left * (n - left) * (n + 1) / 12)
        return float(scores.max()), int(left[scores.argmax()])

    score, at = largest(values)
    rng = np.random.default_rng(len(values))
    blocks = [values[k : k + 5] for k in range(0, len(values), 5)]
    most = max(
        largest(np.concatenate([blocks[k] for k in rng.permutation(len(blocks))]))[0]
        for _ in range(_PERMUTATIONS)
    )
    return [at] if score > most else []


def divided(distances: Array) -> tuple[float, int]:
    """Return the largest energy distance of a division, and its place."""
    n = len(distances)
    left = np.arange(_SMALLEST, n - _SMALLEST + 1)
    sums = np.zeros((n + 1, n + 1))
    sums[1:, 1:] = distances.cumsum(axis=0).cumsum(axis=1)
    within_left = sums[left, left]
    between = sums[left, n] - within_left
    within_right = sums[n, n] - within_left - 2 * between
    right = n - left
    energy = 2 * between / (left * right)
    energy -= within_left / (left * (left - 1)) + within_right / (right * (right - 1))
    scores = energy * left * right / n
    return float(scores.max()), int(left[scores.argmax()])


def e_divisive(values: Array) -> Sequence[int]:
    """Return the best division of all, if fewer than 1 % of permutations have a better one."""
    distances = np.abs(values[:, None] - values[None, :])
    score, at = divided(distances)
    rng = np.random.default_rng(len(values))
    for _ in range(_PERMUTATIONS):
        order = rng.permutation(len(values))
        if divided(distances[np.ix_(order, order)])[0] >= score:
            return []
    return [at]


def otava(values: Array) -> Sequence[int]:
    """Return the divisions of windows that Student's t confirms."""
    found = set()
    for start in range(0, max(len(values) - 25, 1), 25):
        pending = [(start, min(start + 50, len(values)))]
        while pending:
            begin, end = pending.pop()
            if end - begin < 2 * _SMALLEST:
                continue
            part = values[begin:end]
            at = begin + divided(np.abs(part[:, None] - part[None, :]))[1]
            before, after = values[begin:at], values[at:end]
            freedom = len(part) - 2
            pooled = (before.var() * len(before) + after.var() * len(after)) / freedom
            error = math.sqrt(pooled * (1 / len(before) + 1 / len(after)))
            if abs(before.mean() - after.mean()) > student(freedom) * error:
                found.add(at)
                pending += [(begin, at), (at, end)]
    return sorted(found)


def student(freedom: int) -> float:
    """Return the two-sided 0.1 % point of Student's t (Cornish and Fisher's expansion)."""
    z = 3.290527
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + first + second


def pelt(values: Array) -> Sequence[int]:
    """Return the changes of ruptures, whose C code is its exact PELT for squared distances."""
    import ruptures  # type: ignore[import-not-found]

    scaled = values / (np.median(np.abs(np.diff(values))) / 0.954)
    model = ruptures.KernelCPD(kernel="linear", min_size=4).fit(scaled.reshape(-1, 1))
    return [int(at) for at in model.predict(pen=3 * math.log(len(values)))[:-1]]


def asv(values: Array) -> Sequence[int]:
    """Return the changes of asv."""
    from asv.step_detect import detect_steps  # type: ignore[import-not-found]

    return [step[0] for step in detect_steps(list(values))][1:]


def busbar(values: Array) -> Sequence[int]:
    """Return the alarms of Busbar for a series by itself."""
    return (alarms((values, np.arange(len(values))), Noise()) - SOON + 1).tolist()


METHODS: dict[str, Callable[[Array], Sequence[int]]] = {
    "Busbar": busbar,
    "asv": asv,
    "Otava (imitation)": otava,
    "ruptures PELT": pelt,
    "E-divisive, permutation": e_divisive,
    "rank, permuted blocks": rank,
}
_NEEDS = {"asv": "asv", "ruptures PELT": "ruptures"}


def second_table(directory: Path) -> None:
    """Print the table of methods with hindsight."""
    kinds = [kind for kind in OTHERS_KINDS if (directory / f"{kind}.quiet.npy").exists()]
    out.line(f"| method | quiet years with a change: {', '.join(kinds)} | within 5 nights |")
    out.line("|---|---|---|")
    for name, method in METHODS.items():
        if name in _NEEDS and not importlib.util.find_spec(_NEEDS[name]):
            continue
        false, found = [], []
        for kind in kinds:
            quiet = np.load(directory / f"{kind}.quiet.npy")[:OTHERS_SERIES]
            step = np.load(directory / f"{kind}.step.npy")[:OTHERS_SERIES]
            count = sum(bool(method(nights(row)[0])) for row in quiet)
            false.append(percent(count, len(quiet)))
            count = 0
            for row in step:
                values = nights(row[: SOON - AFTER])[0]
                start = len(values) - SOON
                count += any(abs(at - start) <= SOON for at in method(values))
            found.append(percent(count, len(step)))
        out.line(f"| {name} | {', '.join(false)} | {', '.join(found)} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--table", type=int, choices=(1, 2), help="print only this one")
    args = parser.parse_args()
    for number, table in enumerate((first_table, second_table), 1):
        if args.table in (None, number):
            table(args.directory)
            out.line("")


if __name__ == "__main__":
    main()
