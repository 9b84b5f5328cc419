# SPDX-License-Identifier: MIT
"""The share of steps that a method can find in 5 nights, at one false alarm a year in 500 series.

An oracle knows the distribution of the noise, the level before, and that steps are 3 up or down.
It does not know when. Page's cumulative sum of the logarithm of the likelihood ratio is the best
that it can do (G. V. Moustakides, Annals of Statistics 14, 1986); a method that has to estimate
finds fewer. Its threshold is that of 120,000 simulated years. The models are those of
``simulate_nights.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_SERIES, _BATCHES = 10_000, 12
_YEAR, _SETTLED = 365, 40
_STEP, _NIGHTS = 3.0, 5
_PER_SERIES = 1 / 500
_DIPS, _DEPTH = 0.03, 10.0
_FREEDOM = 3


def _normal(rng: np.random.Generator, nights: int) -> Array:
    return rng.normal(size=(nights, _SERIES))


def _t3(rng: np.random.Generator, nights: int) -> Array:
    return rng.standard_t(_FREEDOM, (nights, _SERIES)) / np.sqrt(_FREEDOM)


def _dips(rng: np.random.Generator, nights: int) -> Array:
    return _normal(rng, nights) - _DEPTH * (rng.random((nights, _SERIES)) < _DIPS)


def _followed(rng: np.random.Generator, nights: int, r: float) -> Array:
    noise = _normal(rng, nights)
    for night in range(1, nights):
        noise[night] = r * noise[night - 1] + np.sqrt(1 - r * r) * noise[night]
    return noise


def _log_normal(z: Array) -> Array:
    return -z * z / 2


def _log_t3(z: Array) -> Array:
    return -(_FREEDOM + 1) / 2 * np.log1p(z * z)  # scaled: t^2 / 3 is z^2


def _log_dips(z: Array) -> Array:
    slow = np.log(_DIPS) + _log_normal(z + _DEPTH)
    return np.logaddexp(np.log(1 - _DIPS) + _log_normal(z), slow)


def _sums(z: Array, step: float, log: Callable[[Array], Array], r: float) -> Array:
    """Return the cumulative sums of each night, whose steps may have begun on any night before."""
    before = np.vstack([np.zeros_like(z[:1]), z[:-1]])
    scale = np.sqrt(1 - r * r)
    innovation = (z - r * before) / scale
    quiet = log(innovation)
    # The first night of a step follows one of the old level; the others have moved with it.
    first = log(innovation - step / scale) - quiet
    others = log(innovation - (1 - r) * step / scale) - quiet
    sums = first.copy()
    for night in range(1, len(z)):
        sums[night] = np.maximum(first[night], sums[night - 1] + others[night])
    return sums


@cache
def _found(
    simulate: Callable[[np.random.Generator, int], Array],
    log: Callable[[Array], Array],
    r: float = 0.0,
) -> float:
    rng = np.random.default_rng(1)

    def both(z: Array) -> Array:
        return np.maximum(_sums(z, _STEP, log, r), _sums(z, -_STEP, log, r))

    years = [both(simulate(rng, _SETTLED + _YEAR))[_SETTLED:].max(axis=0) for _ in range(_BATCHES)]
    threshold = np.quantile(np.concatenate(years), 1 - _PER_SERIES)
    series = simulate(rng, _SETTLED + _NIGHTS)
    series[_SETTLED:] -= _STEP
    return float((both(series)[_SETTLED:] >= threshold).any(axis=0).mean())


_independent = partial(_found, _normal, _log_normal)
ORACLES: Mapping[str, Callable[[], float]] = {
    "normal": _independent,
    "week": _independent,
    "gaps": _independent,
    "t3": partial(_found, _t3, _log_t3),
    "dips": partial(_found, _dips, _log_dips),
    "ar": partial(_found, partial(_followed, r=0.5), _log_normal, 0.5),
    "ar8": partial(_found, partial(_followed, r=0.8), _log_normal, 0.8),
}
"""By kind of noise, the share of steps that its oracle finds."""
