# SPDX-License-Identifier: MIT
"""gpu_aware, the program that the checks of this repository run."""

from pathlib import Path

from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.generic import Package
from spack_repo.builtin.build_systems.rocm import ROCmPackage
from spack_repo.busbar.stand_alone import check_linkage, gpu_runtime, launcher, require_driver

from spack.package import *


class GpuAwareMpi(Package, CudaPackage, ROCmPackage):
    """Passes device pointers to MPI, checks every byte and measures every pair of GPUs."""

    license("MIT")

    # `make spack-pin` writes this file from reframe_checks/src, its checksum, and the locks.
    version(
        "1.0",
        url=Path(__file__).with_name("gpu_aware.cpp").as_uri(),
        sha256="57fd69ce623a8059a36358e48e288684320729d31a2a3728c55c8f1e9f9943c5",
        expand=False,
    )

    depends_on("cxx", type="build")
    depends_on("mpi")
    depends_on("hip", when="+rocm")

    conflicts("+cuda", when="+rocm", msg="gpu_aware has one back end: choose +cuda or +rocm")

    sanity_check_is_file = ["bin/gpu_aware"]

    @property
    def gtl(self):
        """Cray's GPU transport layer as linker arguments; None with any other MPI."""
        if not self.spec.satisfies("^[virtuals=mpi] cray-mpich"):
            return None
        return self.spec["cray-mpich"].package.gtl_lib or None

    def install(self, spec, prefix):
        flags = ["-O2", "-std=c++17"]
        libraries = ["-ldl"]
        if spec.satisfies("+cuda"):
            cuda = spec["cuda"].prefix
            flags += ["-DGPU_CUDA", f"-I{cuda.include}"]
            libraries += [f"-L{cuda.lib64}", f"-Wl,-rpath,{cuda.lib64}", "-lcudart"]
        if spec.satisfies("+rocm"):
            hip = spec["hip"].prefix
            flags += ["-DGPU_HIP", "-D__HIP_PLATFORM_AMD__", f"-I{hip.include}"]
            libraries += [f"-L{hip.lib}", f"-Wl,-rpath,{hip.lib}", "-lamdhip64"]
        if self.gtl:
            # The program has no reference to the GTL; MPI looks for it among the loaded libraries.
            libraries += [*self.gtl["ldflags"], "-Wl,--no-as-needed", *self.gtl["ldlibs"]]
        mkdirp(prefix.bin)
        compiler = Executable(spec["mpi"].mpicxx)
        compiler(*flags, "gpu_aware.cpp", "-o", prefix.bin.gpu_aware, *libraries)

    def test_linkage(self):
        """the program is linked with MPI and the libraries of the GPUs"""
        gtl = ["libmpi_gtl_"] if self.gtl else []
        check_linkage(self.prefix.bin.gpu_aware, "libmpi", *gpu_runtime(self.spec), *gtl)

    def _run(self, *args, **how):
        require_driver(self.spec)
        start = launcher(self.spec)
        # Two ranks on one GPU, if there is one, so that any machine will do.
        program = (self.prefix.bin.gpu_aware, "--ranks", "2", "--share-devices")
        output = start("-n", "2", *program, "--check", "64,64K", *args, output=str, **how)
        return start.returncode, output

    def test_two_ranks(self):
        """two ranks exchange data and every byte is right"""
        _, output = self._run("--sizes", "64K")
        assert '"event": "end", "wrong": 0' in output, output
        assert '"metric": "bandwidth"' in output, output

    def test_corruption(self):
        """one flipped byte is an error"""
        status, output = self._run("--inject", "corrupt", fail_on_error=False)
        assert status != 0, f"a corrupted payload passed: {output}"
