# SPDX-License-Identifier: MIT
"""How far a band is proven on a site."""

from __future__ import annotations

from busbar.site.family import Band
from busbar.site.model import Gpus, Proof, Site

_ORDER: tuple[Proof, ...] = ("none", "replay", "run")


def proven(site: Site, gpus: Gpus, band: Band) -> Proof:
    """The band's proof if its readings come from these GPUs, and never more than the site's."""
    if gpus.model not in band.models:
        return "none"
    return min(site.proof, band.proof, key=_ORDER.index)
