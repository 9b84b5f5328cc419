# SPDX-License-Identifier: MIT
"""Pairs of processes that meet without MPI, and what a network port allows them."""

from __future__ import annotations

from reframe.core.builtins import run_after

from .bench import BenchCheck
from .programs import SOURCES

PAIR = str(SOURCES / "pair.sh")


class Pair(BenchCheck, special=True):
    """A server and a client, which ``pair.sh`` starts; on one node it does both."""

    @run_after("setup")
    def keep_them_off_one_core(self) -> None:
        self.leave_all_cores()
