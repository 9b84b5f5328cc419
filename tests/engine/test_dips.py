# SPDX-License-Identifier: MIT
"""Where a bus bandwidth falls after its peak."""

from __future__ import annotations

import pytest

from busbar.engine.reading import Reading
from busbar.engine.verdicts import Judged, dips
from busbar.verdict import Verdict


@pytest.mark.parametrize(("share", "found"), [(0.92, []), (0.88, [0.88])])
def test_a_tenth_less_than_the_peak_is_a_dip(share: float, found: list[float]) -> None:
    judged = [
        Judged(Reading("busbw", nbytes, value), Verdict.DEGRADED)
        for nbytes, value in ((1 << 28, 80.0), (1 << 30, 100.0), (1 << 32, 100 * share))
    ]
    assert [dip.share for dip in dips(judged)] == pytest.approx(found)
