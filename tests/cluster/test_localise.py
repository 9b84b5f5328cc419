# SPDX-License-Identifier: MIT
"""Links that were measured again, against the readings of a healthy fleet."""

from __future__ import annotations

import numpy as np
import pytest

from busbar.cluster.sweep.localise import Pairs, repeated

LINKS, AGAIN, SLOW = 1000, 100, -0.15


@pytest.mark.parametrize(("disturbed", "accused"), [(0, [1]), (AGAIN, [])])
def test_links_measured_again_do_not_hide_how_often_readings_are_slow(disturbed, accused):
    """Link 0-1 is slow in five of six; ``disturbed`` other links were slow once, then well."""
    a, b = np.arange(0, 2 * LINKS, 2), np.arange(1, 2 * LINKS, 2)
    first = np.zeros(LINKS)
    first[: disturbed + 1] = SLOW
    later = np.zeros((6, disturbed + 1))
    later[:5, 0] = SLOW
    rounds = np.concatenate([np.ones(LINKS), np.repeat(np.arange(2, 8), disturbed + 1)])
    again = np.tile(np.arange(disturbed + 1), 6)
    ends = np.arange(LINKS)
    links = np.concatenate([ends, again])
    rate = np.concatenate([first, later.ravel()])
    pairs = Pairs(2 * LINKS, rounds.astype(np.int64), a[links], b[links], rate)
    culprits = repeated(pairs, -0.1, np.ones(2 * LINKS, bool))
    assert [one.end for one in culprits] == accused
