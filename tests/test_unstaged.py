# SPDX-License-Identifier: MIT
"""What must be beaten where no run is known is all that staging through the host could reach."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest

from busbar import site as sites
from busbar.expect import NoExpectation
from busbar.expect.unstaged import expectation
from busbar.output.reading import Reading

SITE = sites.load("h200x4")
PCIE = 63.0  # GB/s of PCIe 5 x16 in one direction
GIB = 1 << 30


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "alltoall", "broadcast"])
def test_staged_data_fills_the_link_of_each_gpu(operation, ranks):
    """Of bus bandwidth that is the link's rate for any number of GPUs, by its definition."""
    found = expectation(
        SITE, operation=operation, ranks=ranks, nodes=1, partition="gpu", nbytes=GIB
    )
    assert found.low == pytest.approx(PCIE, rel=0.01)


def test_sums_that_are_made_in_the_host_are_sent_once():
    found = expectation(
        SITE, operation="all_reduce", ranks=4, nodes=1, partition="gpu", nbytes=GIB
    )
    assert found.low == pytest.approx(1.5 * PCIE, rel=0.01)


def test_between_nodes_it_proves_nothing(root, monkeypatch):
    """There the GPUs of a node send by all their host links at once."""

    def none(*_):
        raise NoExpectation("no run is known")

    monkeypatch.syspath_prepend(root)
    expect = import_module("reframe_checks.xccl").XcclPerf.expect
    check = SimpleNamespace(nodes=2, expect_in=none, settings=lambda _: {})
    with pytest.raises(NoExpectation, match="no run is known"):
        expect(check, SimpleNamespace(ranks=16), Reading("busbw", GIB, 60.0))
