# SPDX-License-Identifier: MIT
"""Expectations: limit and band of a benchmark on a site, from topology and published data."""

from __future__ import annotations

from busbar.expect.collective import COLLECTIVES, collective
from busbar.expect.expectation import Expectation, NoExpectation
from busbar.expect.point import multi_pair, point_to_point
from busbar.expect.question import Question
from busbar.site.model import Site

__all__ = ["COLLECTIVES", "NoExpectation", "Question", "collective", "expect", "point_to_point"]


def expect(site: Site, question: Question) -> Expectation:
    """Return limit and band of a benchmark; raise ``NoExpectation`` if no data supports a band."""
    if question.bench in COLLECTIVES:
        return collective(site, question)
    if question.bench == "osu_mbw_mr":
        return multi_pair(site, question)
    return point_to_point(site, question)
