# SPDX-License-Identifier: MIT
"""Does MPI carry the right bytes from and to every kind of memory?

$ gpu_aware --ranks=4 --buffers=DD,HD,DH,HH --check=1,8,257,4099,16391,65543,1M

With an MPI whose collectives take GPU buffers, ``--collectives=bcast,...`` as well.
"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import fixture, run_after, run_before

from busbar.tools.gpu_aware.request import COLLECTIVES

from .mpi_program import BuildGpuAware, GpuAwareCheck, Sizes


@rfm.simple_test
class gpu_aware(GpuAwareCheck):  # noqa: N801 - ReFrame's test names are what users type
    """Correct data between all pairs, device and host memory in all combinations."""

    descr = "correct data: device-to-device, host-device, device-host"
    tags = {"gate", "nightly"}
    # Both sides of what UCX, libfabric and Open MPI change their protocol at, and odd lengths.
    check_sizes = Sizes((1, 8, 257, 4099, 16391, 65543, 1 << 20))

    def buffers(self) -> tuple[str, ...]:
        return ("DD", "HD", "DH", "HH") if self.on_gpu else ("HH",)

    def ranks_per_node(self) -> int:
        """Two ranks on the GPU of a node that has only one: a message needs two."""
        alone = self.on_gpu and self.node_count == 1
        return max(self.partition.ranks_per_node, 2 if alone else 1)

    @run_after("setup")
    def set_collectives(self) -> None:
        if "collectives" in self.current_environ.features and not self.collectives:
            self.collectives = [*COLLECTIVES]


class BuildByHipcc(BuildGpuAware):
    """The MPI program by hipcc: the wrappers of Open MPI and MPICH call it, Cray's does not."""

    def compiler(self) -> str:
        return "hipcc" if self.without_wrapper else super().compiler()

    @property
    def without_wrapper(self) -> bool:
        """Whether no wrapper of the MPI can be told to call hipcc."""
        return self.environment.mpi == "cray-mpich"

    @run_before("compile", always_last=True)
    def set_hipcc(self) -> None:
        if self.without_wrapper:
            self.build_system.cxxflags += ["-I$MPICH_DIR/include"]
            self.build_system.ldflags += ["-L$MPICH_DIR/lib", "-lmpi"]
        else:
            openmpi = self.environment.mpi == "openmpi"
            self.env_vars["OMPI_CXX" if openmpi else "MPICH_CXX"] = "hipcc"


@rfm.simple_test
class gpu_aware_hipcc(gpu_aware):  # noqa: N801 - see above
    """The same, built as HIP's users build theirs."""

    descr = "correct data of the program that hipcc compiled"
    valid_prog_environs = ["+gpu_aware +rocm"]
    tags = {"nightly"}
    built = fixture(BuildByHipcc, scope="environment")


@rfm.simple_test
class gpu_aware_nodes(gpu_aware):  # noqa: N801 - see above
    """The same between all pairs of two nodes, or of more (``-S nodes=4``)."""

    descr = "correct data between two nodes"
    valid_systems = ["+remote"]
    node_count = 2
    any_nodes = True
