# SPDX-License-Identifier: MIT
"""Write simulated nights for ``change_points.py``, which knows nothing of how they were made.

``python -m tests.bench.simulate_nights DIR [--years N] [--steps N]`` writes files for each kind of
noise: ``KIND.quiet.npy`` has years without a change, ``KIND.step.npy`` series that lose 3 % 20
nights before their end, after 180 nights with a reading, ``KIND.drift.npy`` series that lose 10 %
in the 90 nights that they have, and ``KIND.late.npy`` those that do so after 180 quiet nights. A
row is a series and a column a night; a night without a reading is NaN. The level is 100 and the
standard deviation of the noise 1, from night to night:

- normal: independent and normal
- t3: Student's t with 3 degrees of freedom, scaled to a standard deviation of 1
- ar: each night has half of the noise of the night before, AR(0.5)
- ar8: the same with 0.8 of it
- dips: normal, and 3 % of the nights lose 10
- depths: normal, and 3 % of the nights lose between 2 and 20
- week: normal, and Saturdays and Sundays lose 2
- gaps: normal, and a tenth of the nights is missing
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NIGHTS = 365
BEFORE = 180
AFTER = 20
MISSING = 0.1
STEP = 3.0
DRIFT = 90
DRIFTED = 10.0
KINDS = ("normal", "t3", "ar", "ar8", "dips", "depths", "week", "gaps")
_CORRELATION = {"ar": 0.5, "ar8": 0.8}
_SETTLED = 50
"""Nights before the first one, so that the noise has forgotten its beginning."""


def simulate(
    kind: str, series: int, nights: int, rng: np.random.Generator, step_at: int | None = None
) -> NDArray[np.float32]:
    """Return series of one kind of noise, which lose 3 from night ``step_at`` on."""
    shape = (series, nights)
    if kind == "t3":
        noise = rng.standard_t(3, shape) / np.sqrt(3)
    elif kind in _CORRELATION:
        r = _CORRELATION[kind]
        noise = rng.normal(size=(series, nights + _SETTLED))
        for night in range(1, nights + _SETTLED):
            noise[:, night] = r * noise[:, night - 1] + np.sqrt(1 - r**2) * noise[:, night]
        noise = noise[:, _SETTLED:]
    else:
        noise = rng.normal(size=shape)
    values = 100 + noise
    if kind == "dips":
        values -= 10 * (rng.random(shape) < 0.03)
    if kind == "depths":
        values -= rng.uniform(2, 20, shape) * (rng.random(shape) < 0.03)
    if kind == "week":
        values -= 2 * ((np.arange(nights) + rng.integers(7, size=(series, 1))) % 7 >= 5)
    if step_at is not None:
        values[:, step_at:] -= STEP
    if kind == "gaps":
        values[rng.random(shape) < MISSING] = np.nan
    return values.astype(np.float32)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--years", type=int, default=2_000, help="series of 365 quiet nights")
    parser.add_argument("--steps", type=int, default=1_500, help="series with a step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS, metavar="KIND")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    for kind in args.kinds:
        rng = np.random.default_rng([args.seed, KINDS.index(kind)])
        quiet = simulate(kind, args.years, NIGHTS, rng)
        np.save(args.directory / f"{kind}.quiet.npy", quiet)
        before = round(BEFORE / (1 - MISSING)) if kind == "gaps" else BEFORE
        step = simulate(kind, args.steps, before + AFTER, rng, before)
        np.save(args.directory / f"{kind}.step.npy", step)
        for name, nights in (("drift", 0), ("late", BEFORE)):
            lost = np.concatenate([np.zeros(nights), np.linspace(0, DRIFTED, DRIFT)])
            drifting = simulate(kind, args.steps, nights + DRIFT, rng) - lost
            np.save(args.directory / f"{kind}.{name}.npy", drifting.astype(np.float32))


if __name__ == "__main__":
    main()
