# SPDX-License-Identifier: MIT
"""The expectation between a GPU and host memory, where few readings are known.

The site's host link gives the limit, and a band judges where a reading stands behind one. Without
one, a reading passes only above a floor: the sources of the expectation say which, so that nobody
takes it for a measured band.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from busbar.expect import NoExpectation, Question, point_to_point
from busbar.expect.expectation import Expectation
from busbar.site import Site

_LEAST_SHARE = 0.25
"""Of the link. MPI copies pageable host memory piece by piece and need not fill it, but a quarter
of it at 4 MiB was reported as a fault: openucx/ucx issue 6327, 4.0 of 15.75 GB/s."""
_LEAST_OF_A_COPY = 0.5
"""Of the link, by the GPU's copy engine from pinned memory: a link at half its width or one
generation down stays below."""
_NEARLY_THE_SAME = 0.5
"""Another release, or the other direction, copies in other pieces; half as fast is still it."""


def expectation(site: Site, question: Question) -> Expectation:
    """GB/s of ``osu_bw`` or ``copy`` between host memory and a GPU (``H D`` or ``D H``).

    Raises ``NoExpectation`` where the site does not say how its GPUs reach the host.
    """
    try:
        return point_to_point(site, question)
    except NoExpectation as missing:
        if missing.limit is None:
            raise
        limit, path, why = missing.limit, missing.path, str(missing)
    floor, source = _floor(site, question, limit)
    return Expectation(
        limit=limit,
        low=floor,
        typical=floor,
        high=limit,
        path=path,
        sources=(f"no band: {why}", f"floor: {source}"),
        nbytes=question.nbytes,
        floor=True,
    )


def _floor(site: Site, question: Question, limit: float) -> tuple[float, str]:
    """Return the least GB/s that shows the way of the data, and where that number comes from."""
    if question.bench == "copy":
        return _LEAST_OF_A_COPY * limit, f"{_LEAST_OF_A_COPY:g} of the link"
    buffers = question.buffers
    back = replace(question, src=question.dst, dst=question.src, buffers=buffers[::-1])
    for other in (question, back):
        with contextlib.suppress(NoExpectation):
            known = point_to_point(site, replace(other, lane=None)).low
            source = f"{_NEARLY_THE_SAME:g} of what is known of {other.buffers} buffers"
            return _NEARLY_THE_SAME * known, f"{source} and any release"
    return _LEAST_SHARE * limit, f"{_LEAST_SHARE:g} of the link, openucx/ucx issue 6327"
