# SPDX-License-Identifier: MIT
"""Does MPI carry the right bytes from and to every kind of memory?"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import run_after

from .mpi_program import GpuAwareCheck


@rfm.simple_test
class gpu_aware(GpuAwareCheck):  # noqa: N801 - ReFrame's test names are what users type
    """Correct data between all pairs, device and host memory in all combinations."""

    descr = "correct data: device-to-device, host-device, device-host"
    tags = {"gate", "nightly"}
    check_sizes = "1,4099,1M"

    def buffers(self) -> tuple[str, ...]:
        return ("DD", "HD", "DH", "HH") if self.on_gpu else ("HH",)

    @run_after("setup")
    def set_collectives(self) -> None:
        if "collectives" in self.current_environ.features and not self.collectives:
            self.collectives = "bcast,allgather,alltoall,allreduce,reduce_scatter_block"


@rfm.simple_test
class gpu_aware_nodes(gpu_aware):  # noqa: N801 - see above
    """The same between all pairs of two nodes."""

    descr = "correct data between two nodes"
    valid_systems = ["+remote"]
    nodes = 2
