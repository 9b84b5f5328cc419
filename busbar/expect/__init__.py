# SPDX-License-Identifier: MIT
"""Expectations: limit and band of a benchmark on a site, from topology and published data."""

from __future__ import annotations

from busbar.expect.collective import COLLECTIVES, collective
from busbar.expect.errors import NoExpectation
from busbar.expect.point import multi_pair, point_to_point

__all__ = ["COLLECTIVES", "NoExpectation", "collective", "multi_pair", "point_to_point"]
