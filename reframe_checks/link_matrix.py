# SPDX-License-Identifier: MIT
"""Does every ordered pair of GPUs (or cores, or nodes) move bytes as fast as its links allow?

$ gpu_aware --ranks=4 --buffers=DD --sizes=1M,4M,16M,64M,256M --latency-sizes=8
"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import run_after

from busbar.engine.launch import powers
from busbar.tools.gpu_aware.request import BESIDE_COPIES, BEST_MESSAGES

from .mpi_program import GpuAwareCheck, Sizes


@rfm.simple_test
class link_matrix(GpuAwareCheck):  # noqa: N801 - ReFrame's test names are what users type
    """Bandwidth and latency of every ordered pair of a node, in one launch."""

    descr = "bandwidth and latency of every pair"
    valid_systems = ["+pair"]
    tags = {"gate", "nightly"}
    latency_sizes = Sizes((8,))

    @run_after("setup")
    def set_sizes(self) -> None:
        if self.on_gpu:
            self.sizes = self.sizes or Sizes(powers(1 << 20, 256 << 20, 4))
        else:
            self.sizes = self.sizes or Sizes((64 << 10, 1 << 20, 4 << 20))
            self.take_best_windows(BESIDE_COPIES)


@rfm.simple_test
class link_matrix_nodes(GpuAwareCheck):  # noqa: N801 - ReFrame's test names are what users type
    """Bandwidth between two nodes, in each direction, for a comparison of nodes.

    The best of many single messages: other programs interrupt some, and a slow link delays all.
    """

    descr = "bandwidth between two nodes, each way"
    valid_systems = ["+remote"]
    tags = {"gate", "nightly"}
    node_count = 2
    any_nodes = True
    sizes = Sizes((1 << 20,))

    @run_after("setup")
    def set_statistic(self) -> None:
        self.more_options = f"{BEST_MESSAGES} {self.more_options}"

    def buffers(self) -> tuple[str, ...]:
        return ("HH",)

    def ranks_per_node(self) -> int:
        return 1
