# SPDX-License-Identifier: MIT
"""What a benchmark should read on a site: limit and band, from the topology and published data."""

from __future__ import annotations

from busbar.expect.errors import NoExpectation
from busbar.expect.point import point_to_point

__all__ = ["NoExpectation", "point_to_point"]
