# SPDX-License-Identifier: MIT
"""The proof of a band on a site: none, replayed logs, or runs."""

from __future__ import annotations

from busbar.site.family import Band
from busbar.site.model import Gpus, Proof, Site

_ORDER: tuple[Proof, ...] = ("none", "replay", "run")


def proven(site: Site, gpus: Gpus, band: Band) -> Proof:
    """Return the weaker proof of band and site; ``none`` if the band is of other GPUs."""
    if gpus.model not in band.models:
        return "none"
    return min(site.proof, band.proof, key=_ORDER.index)
