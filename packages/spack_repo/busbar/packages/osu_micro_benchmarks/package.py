# SPDX-License-Identifier: MIT
"""OSU Micro-Benchmarks with GPU buffers really on, and Cray's GTL linked."""

from spack_repo.builtin.packages.osu_micro_benchmarks.package import (
    OsuMicroBenchmarks as BuiltinOsuMicroBenchmarks,
)
from spack_repo.busbar.stand_alone import check_linkage, gpu_runtime, launcher, needed

from spack.package import *


class OsuMicroBenchmarks(BuiltinOsuMicroBenchmarks):
    """OSU Micro-Benchmarks with GPU buffers and GTL."""

    license("BSD-3-Clause")

    conflicts("+cuda", when="+rocm", msg="OSU has buffers of one GPU vendor at a time")
    conflicts(
        "^cuda@13:",
        when="@:7.4 +cuda",
        msg="CUDA 13 changed the arguments of cudaMemPrefetchAsync",
    )

    sanity_check_is_file = [
        "libexec/osu-micro-benchmarks/mpi/pt2pt/osu_bw",
        "libexec/osu-micro-benchmarks/mpi/collective/osu_allreduce",
    ]

    @property
    def gtl(self):
        """Linker arguments of Cray's GPU transport layer; empty with any other MPI."""
        if not self.spec.satisfies("^[virtuals=mpi] cray-mpich"):
            return []
        found = self.spec["cray-mpich"].package.gtl_lib
        if not found:
            return []
        # One argument: nothing in OSU refers to the GTL, so a linker that drops unused libraries
        # would drop it, and libtool may move a lone --no-as-needed away from its library.
        libraries = [
            f"-Wl,--push-state,--no-as-needed,{name},--pop-state" for name in found["ldlibs"]
        ]
        return found["ldflags"] + libraries

    def configure_args(self):
        args = super().configure_args()
        # v2026.06.0 lost --enable-rocm, without which `-d rocm` measures host memory.
        if self.spec.satisfies("+rocm") and "--enable-rocm" not in args:
            args.append("--enable-rocm")
        if self.spec.satisfies("+rocm +xccl"):
            rccl = self.spec["rccl"].prefix
            # configure includes <rccl.h>, which is in include/rccl, and names the library before
            # the objects, where a linker with --as-needed drops it.
            args.extend([f"CPPFLAGS=-I{rccl.include.rccl}", "LIBS=-lrccl"])
        if self.gtl:
            args = [arg for arg in args if not arg.startswith("LDFLAGS=")]
            args.append("LDFLAGS=" + " ".join(["-lrt", *self.gtl]))
        return args

    @run_after("install")
    def check_gtl(self):
        """Refuses an installation whose MPI would not take GPU memory on a Cray system."""
        if not self.gtl:
            return
        benchmark = self._program("mpi", "pt2pt", "osu_bw")
        if "libmpi_gtl_" not in needed(benchmark):
            raise InstallError(f"{benchmark} does not link Cray's GTL")

    def _program(self, *path):
        return join_path(self.prefix.libexec, "osu-micro-benchmarks", *path)

    def test_linkage(self):
        """the programs are linked with MPI and the libraries of the GPUs"""
        check_linkage(self._program("mpi", "pt2pt", "osu_bw"), "libmpi", *gpu_runtime(self.spec))
        if self.spec.satisfies("+xccl"):
            xccl = "libnccl.so" if self.spec.satisfies("+cuda") else "librccl.so"
            check_linkage(self._program("xccl", "collective", "osu_xccl_allreduce"), xccl)

    def test_latency(self):
        """osu_latency runs on two ranks with data validation"""
        start = launcher(self.spec)
        benchmark = self._program("mpi", "pt2pt", "osu_latency")
        out = start("-n", "2", benchmark, "-m", "8:64", "-c", output=str.split, error=str.split)
        assert "Pass" in out, "osu_latency printed no validated row"
