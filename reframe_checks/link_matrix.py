# SPDX-License-Identifier: MIT
"""Does every ordered pair of GPUs (or cores) move bytes as fast as its links allow?"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import run_after

from .base import SOURCES
from .mpi_program import GpuAwareCheck


@rfm.simple_test
class link_matrix(GpuAwareCheck):  # noqa: N801 - ReFrame's test names are what users type
    """Bandwidth and latency of every ordered pair of a node, in one launch."""

    descr = "bandwidth and latency of every pair"
    tags = {"gate", "nightly"}
    latency_sizes = "8"

    @run_after("setup")
    def set_sizes(self) -> None:
        if self.on_gpu:
            self.sizes = self.sizes or "1M,4M,16M,64M,256M"
        else:
            # A machine shared with others is judged by its best windows, which must be short
            # enough to fall between two interruptions.
            self.sizes = self.sizes or "64K,1M,4M"
            best = "--copy --statistic=best --window=4 --seconds=0.2"
            self.more_options = f"{best} {self.more_options}"
            self.wrapper = f"{SOURCES / 'own_core.sh'} {self.wrapper}"
