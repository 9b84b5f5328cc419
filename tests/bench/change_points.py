# SPDX-License-Identifier: MIT
"""Measure change point statistics on simulated nights: false alarms, and steps found in 5 nights.

``python tests/bench/change_points.py [--series N] [--seeds N] [--kinds KIND...]`` prints the table
of docs/history.md. With ``--others`` it compares offline methods on whole years, some of
which need ruptures and asv in an environment of their own, with Busbar on PYTHONPATH.

A year has 365 nights at level 100 with noise of a standard deviation of 1, from night to night:

- normal: independent normal noise
- t3: Student's t with 3 degrees of freedom, scaled to a standard deviation of 1
- ar: each night has half of the noise of the night before, AR(0.5), standard deviation 1
- dips: normal, and 3 % of the nights lose 10
- week: normal, and Saturdays and Sundays lose 2
- gaps: normal, and a tenth of the nights is missing

False alarms are counted per year in 500 series, as nights come: a series that alarms at any night
counts once. A step of 3 % is found if its alarm comes within 5 nights, of which the first is
the night of the step; 180 nights precede it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from busbar.history.statistic import SERIES, UNKNOWN, Array, Noise, common_noise, scan

NIGHTS = 365
BEFORE = 180
FOUND_IN = 5
STEP = 3.0
Days = NDArray[np.int64]
Nights = tuple[Array, Days]


def _noise(kind: str, nights: int, rng: np.random.Generator) -> Array:
    if kind == "t3":
        return rng.standard_t(3, nights) / np.sqrt(3)
    normal = rng.normal(size=nights + 50)
    if kind == "ar":
        for night in range(1, len(normal)):
            normal[night] = 0.5 * normal[night - 1] + np.sqrt(0.75) * normal[night]
    noise: Array = normal[50:]
    if kind == "dips":
        noise = noise - 10 * (rng.random(nights) < 0.03)
    if kind == "week":
        noise = noise - 2 * ((np.arange(nights) + rng.integers(7)) % 7 >= 5)
    return noise


KINDS = ("normal", "t3", "ar", "dips", "week", "gaps")


def simulate(kind: str, nights: int, seed: int, step: int | None = None) -> Nights:
    """Return readings and the days of their nights; from ``step`` on, they are 3 % lower."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    values = 100 + _noise(kind, nights, rng)
    days = np.arange(nights)
    if step is not None:
        values[step:] -= STEP
    if kind == "gaps":
        kept = rng.random(nights) >= 0.1
        kept[step or 0 :] |= step is not None
        return values[kept], days[kept]
    return values, days


def _ours(values: Array, days: Days, noise: Noise) -> Sequence[int]:
    return np.flatnonzero(np.abs(scan(values, days, SERIES, noise).score) >= 1).tolist()


def _rank(values: Array) -> Sequence[int]:
    """The largest rank sum of a division, with a threshold from permuted blocks of 5 nights."""

    def largest(series: Array) -> tuple[float, int]:
        n = len(series)
        sums = np.cumsum(np.argsort(np.argsort(series)) - (n - 1) / 2)[4:-4]
        left = np.arange(5, n - 3)
        scores = np.abs(sums) / np.sqrt(left * (n - left) * (n + 1) / 12)
        return float(scores.max()), int(left[scores.argmax()])

    score, at = largest(values)
    rng = np.random.default_rng(len(values))
    blocks = [values[k : k + 5] for k in range(0, len(values), 5)]
    most = max(
        largest(np.concatenate([blocks[k] for k in rng.permutation(len(blocks))]))[0]
        for _ in range(99)
    )
    return [at] if score > 1.25 * most else []


def _t_test(values: Array) -> Sequence[int]:
    """The division with the largest t, tested as if it had been chosen beforehand, as Otava does.

    The threshold is that of 0.1 %.
    """
    left = np.arange(5, len(values) - 4)
    sums, squares = np.cumsum(values), np.cumsum(values**2)
    n, m = left, len(values) - left
    before, after = sums[left - 1] / n, (sums[-1] - sums[left - 1]) / m
    rest = squares[-1] - n * before**2 - m * after**2
    t = np.abs(before - after) / np.sqrt(rest / (len(values) - 2) * (1 / n + 1 / m))
    return [int(left[t.argmax()])] if t.max() > 3.3 else []


def _others() -> dict[str, Callable[[Array], Sequence[int]]]:
    """Return methods of others; those that are not installed are left out."""
    found: dict[str, Callable[[Array], Sequence[int]]] = {"rank": _rank, "t-test": _t_test}
    try:
        import ruptures  # type: ignore[import-not-found]

        def pelt(values: Array) -> Sequence[int]:
            model = ruptures.Pelt(model="l2", min_size=4, jump=1)
            scaled = values / (np.median(np.abs(np.diff(values))) / 0.954)
            return list(model.fit(scaled).predict(pen=3 * np.log(len(values))))[:-1]

        found["ruptures PELT"] = pelt
    except ImportError:
        pass
    try:
        from asv.step_detect import detect_steps  # type: ignore[import-not-found]

        def asv(values: Array) -> Sequence[int]:
            return [step[0] for step in detect_steps(list(values))][1:]

        found["asv"] = asv
    except ImportError:
        pass
    return found


def _offline(kind: str, count: int) -> None:
    """Print what each method makes of whole years, without a step and with one at night 180."""

    def ours(values: Array) -> Sequence[int]:
        return _ours(values, np.arange(len(values)), UNKNOWN)

    for name, method in {"Busbar": ours, **_others()}.items():
        clean = sum(bool(method(simulate(kind, NIGHTS, seed)[0])) for seed in range(count))
        found = sum(
            any(
                BEFORE - FOUND_IN <= change <= BEFORE + FOUND_IN
                for change in method(simulate(kind, NIGHTS, 10**6 + seed, BEFORE)[0])
            )
            for seed in range(count)
        )
        sys.stdout.write(f"| {name} | {kind} | {clean / count:.0%} | {found / count:.0%} |\n")
        sys.stdout.flush()


def _nightly(kind: str, series: int, seeds: int) -> None:
    """Print false alarms and steps found by Busbar as nights come."""
    years = [simulate(kind, NIGHTS, seed) for seed in range(series)]
    noise = common_noise([v for v, _ in years], [d for _, d in years])
    alarms = sum(bool(_ours(*year, noise)) for year in years)
    found = {True: 0, False: 0}
    for seed in range(seeds):
        values, days = simulate(kind, BEFORE + FOUND_IN, 10**6 + seed, BEFORE)
        for among in found:
            nights = _ours(values, days, noise if among else UNKNOWN)
            found[among] += any(night >= len(values) - FOUND_IN for night in nights)
    sys.stdout.write(
        f"| {kind} | {alarms * SERIES / series:.1f} | {found[True] / seeds:.1%} |"
        f" {found[False] / seeds:.1%} |\n"
    )
    sys.stdout.flush()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    args = parser.parse_args()
    for kind in args.kinds:
        if args.others:
            _offline(kind, args.series)
        else:
            _nightly(kind, args.series, args.seeds)


if __name__ == "__main__":
    main()
