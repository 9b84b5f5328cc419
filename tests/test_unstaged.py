# SPDX-License-Identifier: MIT
"""What must be beaten where no run is known is all that staging through the host could reach."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busbar import site as sites
from busbar.engine.expectation import expectation_of
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.expect.floors import above_host_link

SITE = sites.load("h200x4")
PCIE = 63.0  # GB/s of PCIe 5 x16 in one direction
GIB = 1 << 30


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "alltoall", "broadcast"])
def test_staged_data_fills_the_link_of_each_gpu(operation, ranks):
    """Of bus bandwidth that is the link's rate for any number of GPUs, by its definition."""
    found = above_host_link(
        SITE, operation=operation, ranks=ranks, nodes=1, partition="gpu", nbytes=GIB
    )
    assert found.low == pytest.approx(PCIE, rel=0.01)


def test_sums_that_are_made_in_the_host_are_sent_once():
    found = above_host_link(
        SITE, operation="all_reduce", ranks=4, nodes=1, partition="gpu", nbytes=GIB
    )
    assert found.low == pytest.approx(1.5 * PCIE, rel=0.01)


def test_a_band_without_measurements_of_its_kind_is_used_before_it():
    """Between nodes, the GPUs of a node send by all their host links at once."""
    run = Run(site=sites.load("mi250x-cray"), bench="alltoall", nodes=2, ranks=16)
    reading = Reading("busbw", GIB // 4, 10.0)
    for each in (run, replace(run, nodes=1, ranks=8)):
        found = expectation_of(each)(reading)
        assert found.outside
        assert not found.floor
