# SPDX-License-Identifier: MIT
"""What ReFrame is told of a reading."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from busbar.engine.results import Result
from busbar.verdict import Verdict
from reframe_checks.base import ReportingMixin


@pytest.mark.parametrize(
    ("bounds", "reference"),
    [
        ({"low": 8.0, "typical": 10.0, "high": 12.0, "limit": 15.0}, (10.0, -0.2, 0.5, "GB/s")),
        # Calibrated: a copy by all cores within host memory, which uses no link.
        ({"low": 8.0, "typical": 10.0, "high": 12.0}, (10.0, -0.2, None, "GB/s")),
        ({"limit": 15.0}, (0, None, None, "GB/s")),
    ],
)
def test_the_bounds_of_a_bandwidth(bounds, reference):
    check = SimpleNamespace(
        perf_variables={}, reference={}, current_partition=SimpleNamespace(fullname="site:node")
    )
    row = Result("memory", Verdict.PASS, metric="bandwidth", gb_per_s=9.5, bytes=1, **bounds)
    ReportingMixin.add_metric(check, row)
    (found,) = check.reference.values()
    assert found == pytest.approx(reference)
