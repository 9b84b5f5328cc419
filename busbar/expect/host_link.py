# SPDX-License-Identifier: MIT
"""The expectation between a GPU and host memory, where few readings are known.

The site's host link gives the limit, and a band judges where a reading stands behind one. Without
one, a reading passes only above a floor: the sources of the expectation say which, so that nobody
takes it for a measured band.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from busbar.expect import NoExpectation, point_to_point
from busbar.expect.expectation import Expectation
from busbar.site import Site

_LEAST_SHARE = 0.25
"""Of the link. MPI copies pageable host memory piece by piece and need not fill it, but a quarter
of it at 4 MiB was reported as a fault: openucx/ucx issue 6327, 4.0 of 15.75 GB/s."""
_NEARLY_THE_SAME = 0.5
"""Another release, or the other direction, copies in other pieces; half as fast is still it."""


def expectation(
    site: Site,
    *,
    src: int,
    dst: int,
    nbytes: int,
    buffers: str,
    lane: str | None = None,
    environment: Mapping[str, str] | None = None,
    partition: str | None = None,
) -> Expectation:
    """GB/s of ``osu_bw`` between host memory and a GPU (``H D`` or ``D H``).

    Raises ``NoExpectation`` where the site does not say how its GPUs reach the host.
    """

    def known(kinds: str, release: str | None) -> Expectation:
        a, b = (src, dst) if kinds == buffers else (dst, src)
        return point_to_point(
            site,
            bench="osu_bw",
            src=a,
            dst=b,
            nbytes=nbytes,
            buffers=kinds,
            lane=release,
            environment=environment,
            partition=partition,
        )

    try:
        return known(buffers, lane)
    except NoExpectation as missing:
        if missing.limit is None:
            raise
        limit, path, why = missing.limit, missing.path, str(missing)
    floor = _LEAST_SHARE * limit
    says = f"{_LEAST_SHARE:g} of the link, openucx/ucx issue 6327"
    for kinds in (buffers, buffers[::-1]):
        with contextlib.suppress(NoExpectation):
            floor = _NEARLY_THE_SAME * known(kinds, None).low
            says = f"{_NEARLY_THE_SAME:g} of what is known of {kinds} buffers and any release"
            break
    return Expectation(
        limit=limit,
        low=floor,
        typical=floor,
        high=limit,
        path=path,
        sources=(f"no band: {why}", f"floor: {says}"),
        nbytes=nbytes,
        floor=True,
    )
