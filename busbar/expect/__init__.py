# SPDX-License-Identifier: MIT
"""What a benchmark should read on a site: limit and band, from the topology and published data."""

from __future__ import annotations

from busbar.expect.collective import COLLECTIVES, collective
from busbar.expect.errors import NoExpectation
from busbar.expect.point import multi_pair, point_to_point

__all__ = ["COLLECTIVES", "NoExpectation", "collective", "multi_pair", "point_to_point"]
