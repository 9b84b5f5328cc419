# SPDX-License-Identifier: MIT
"""Reading ``fi_pingpong`` as libfabric 1.17.0 prints it, and rows that do not fit."""

from __future__ import annotations

import pytest

from busbar.tools.fabtests.parse import FabtestsRow, rows


def recorded(data):
    return (data / "libfabric" / "fi_pingpong_1.17.0_tcp.log").read_text().splitlines()


def test_recorded_run(data):
    """1 MiB in the 493.60 us that the tool prints for each transfer: its MB are 10**6 bytes."""
    (row,) = rows(recorded(data))
    assert (row.nbytes, row.all_arrived) == (1 << 20, True)
    assert row.gb_per_s == pytest.approx((1 << 20) / 493.60e-6 / 1e9, rel=1e-4)


def test_lost_messages_are_seen():
    heads = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"
    assert rows([heads, "64k  10  =9  1.2m  0.01s  100.00  655.36  0.00"]) == [
        FabtestsRow(64 << 10, 0.1, all_arrived=False, sent=10)
    ]


def test_other_columns_are_found_by_name():
    heads = "bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec"
    assert rows([heads, "1m  100  100m  0.01s  12000.00  87.38  0.01"]) == [
        FabtestsRow(1 << 20, 12.0, all_arrived=True, sent=100)
    ]


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        rows(["bytes  iters  MB/sec", "1m  100"])
