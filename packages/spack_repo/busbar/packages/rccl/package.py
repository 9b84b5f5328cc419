# SPDX-License-Identifier: MIT
"""RCCL with NPKit and MSCCL as variants."""

from spack_repo.builtin.packages.rccl.package import Rccl as BuiltinRccl

from spack.package import *

# Of what RCCL's install.sh switches on with --npkit-enable, the spans of whole collectives,
# of their waits, and of the network.
_NPKIT_SPANS = (
    "ALL_REDUCE_RING",
    "ALL_REDUCE_TREE_UPDOWN",
    "ALL_REDUCE_TREE_SPLIT",
    "ALL_GATHER_RING",
    "SEND_RECV_SEND",
    "SEND_RECV_RECV",
    "NET_SEND",
    "NET_RECV",
    "PRIM_SIMPLE_WAIT_PEER",
    "PRIM_SIMPLE_REDUCE_OR_COPY_MULTI",
    "PRIM_LL_WAIT_SEND",
    "PRIM_LL_DATA_PROCESS",
    "PRIM_LL128_WAIT_SEND",
    "PRIM_LL128_DATA_PROCESS",
)


class Rccl(BuiltinRccl):
    """RCCL with NPKit and MSCCL as variants."""

    license("BSD-3-Clause")

    variant("npkit", default=False, description="Collect NPKit traces (NPKIT_DUMP_DIR)")
    variant("msccl", default=True, description="Build the MSCCL kernels, as AMD's packages do")

    sanity_check_is_file = ["lib/librccl.so", "include/rccl/rccl.h"]

    def cmake_args(self):
        args = [arg for arg in super().cmake_args() if "ENABLE_MSCCL_KERNEL" not in arg]
        args.append(self.define_from_variant("ENABLE_MSCCL_KERNEL", "msccl"))
        if self.spec.satisfies("+npkit"):
            events = [f"{span}_{edge}" for span in _NPKIT_SPANS for edge in ("ENTRY", "EXIT")]
            events += ["TIME_SYNC_GPU", "TIME_SYNC_CPU"]
            flags = ["-DENABLE_NPKIT", *(f"-DENABLE_NPKIT_EVENT_{event}" for event in events)]
            args.append(self.define("NPKIT_FLAGS", " ".join(flags)))
        return args
