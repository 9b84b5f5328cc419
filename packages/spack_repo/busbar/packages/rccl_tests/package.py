# SPDX-License-Identifier: MIT
"""rccl-tests at a commit, for the GPUs that are named."""

from spack_repo.builtin.build_systems.rocm import ROCmPackage
from spack_repo.builtin.packages.rccl_tests.package import RcclTests as BuiltinRcclTests
from spack_repo.busbar.stand_alone import check_linkage, require_driver

from spack.package import *


class RcclTests(BuiltinRcclTests):
    """rccl-tests, which has no releases, at a pinned commit."""

    # The commit that two published runs on MI250 and MI300X name.
    version("develop-40b1b179", commit="40b1b17901370a7880d4a56854b5361c89f8d324", preferred=True)

    variant(
        "amdgpu_target",
        description="AMD GPU architectures; auto: all that the sources name",
        values=auto_or_any_combination_of(*ROCmPackage.amdgpu_targets),
        sticky=True,
    )

    # Spack adds its compiler wrapper by a rule that looks at one of the two llvm-amdgpu that ROCm
    # needs in a solve; which one compiles this package changes from solve to solve, and the lock
    # with it. Requested by name, it is always there.
    depends_on("compiler-wrapper", type="build")
    depends_on("rocm-cmake", type="build")

    conflicts("@=develop", msg="a branch cannot be locked: take the pinned version")
    conflicts("@=master", msg="a branch cannot be locked: take the pinned version")

    sanity_check_is_file = ["bin/all_reduce_perf", "bin/all_gather_perf", "bin/sendrecv_perf"]

    def cmake_args(self):
        args = super().cmake_args()
        if not self.spec.satisfies("amdgpu_target=auto"):
            args.append(self.define_from_variant("GPU_TARGETS", "amdgpu_target"))
        return args

    def test_linkage(self):
        """the programs are linked with RCCL and MPI"""
        mpi = ["libmpi"] if self.spec.satisfies("+mpi") else []
        check_linkage(self.prefix.bin.all_reduce_perf, "librccl.so", *mpi)

    def test_all_reduce(self):
        """all_reduce_perf is correct on one GPU"""
        require_driver(self.spec)
        benchmark = which(self.prefix.bin.all_reduce_perf, required=True)
        out = benchmark("-b", "8", "-e", "1M", "-f", "2", "-g", "1", output=str.split)
        assert "Out of bounds values : 0 OK" in out, "all_reduce_perf reported wrong results"
