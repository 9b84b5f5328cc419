# SPDX-License-Identifier: MIT
"""nccl-tests of the newest release."""

from spack_repo.builtin.packages.nccl_tests.package import NcclTests as BuiltinNcclTests
from spack_repo.busbar.stand_alone import check_linkage, require_driver

from spack.package import *


class NcclTests(BuiltinNcclTests):
    """nccl-tests with newer releases and tests of its own."""

    license("BSD-3-Clause")

    git = "https://github.com/NVIDIA/nccl-tests.git"

    # Commit of the tag v2.19.7, as four public repositories name it.
    version("2.19.7", commit="1a65d7f0514b8da6a61ae235d1c5f38549478e29")

    conflicts(
        "cuda_arch=none",
        when="+cuda",
        msg="name the GPUs (cuda_arch=90): without, nvcc builds for one default architecture",
    )

    sanity_check_is_file = [
        f"bin/{name}_perf"
        for name in (
            "all_reduce",
            "all_gather",
            "alltoall",
            "broadcast",
            "reduce_scatter",
            "sendrecv",
        )
    ]

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        install_tree("build", prefix.bin, ignore=lambda path: path.endswith(".o"))

    def test_linkage(self):
        """the programs are linked with NCCL and MPI"""
        mpi = ["libmpi"] if self.spec.satisfies("+mpi") else []
        check_linkage(self.prefix.bin.all_reduce_perf, "libnccl.so", *mpi)

    def test_all_reduce(self):
        """all_reduce_perf is correct on one GPU"""
        require_driver(self.spec)
        benchmark = which(self.prefix.bin.all_reduce_perf, required=True)
        out = benchmark("-b", "8", "-e", "1M", "-f", "2", "-g", "1", output=str.split)
        assert "Out of bounds values : 0 OK" in out, "all_reduce_perf reported wrong results"
