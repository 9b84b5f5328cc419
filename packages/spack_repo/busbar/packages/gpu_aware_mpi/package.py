# SPDX-License-Identifier: MIT
"""gpu_aware, the program that this repository's checks run, built from this repository."""

import hashlib
import os

from spack_repo.builtin.build_systems.cuda import CudaPackage
from spack_repo.builtin.build_systems.generic import Package
from spack_repo.builtin.build_systems.rocm import ROCmPackage

from spack.package import *

# reframe_checks/src of the repository that holds this recipe.
_SOURCE = os.path.join(os.path.abspath(__file__ + "/../../../../../.."), "reframe_checks", "src")


class GpuAwareMpi(Package, CudaPackage, ROCmPackage):
    """Passes device pointers to MPI, checks every byte and measures every pair of GPUs."""

    license("MIT")

    # Nothing to fetch: the source lies beside the recipe. It is pinned all the same: these sums
    # are part of the hash in every lock, so a changed program is another package and never taken
    # for an installed one. `make spack-pin` writes them and brings the locks up to date.
    has_code = False
    sources = {
        "buffers.hpp": "0fdf7e6ca3d7b7cc837ca9401e9ae0bf2e497e9f41510a75717c951a3be5c68c",
        "device.hpp": "9a652e02cd16a802a6851d99c67253fd7b418f9105223b4adc0c7eb8a37c9722",
        "exchange.hpp": "33ad5fb37193522d76217e518f0569fdabf84b6dcc792fc24fc8464329f524b6",
        "gpu_aware.cpp": "c3a3c64243cded279455a20833baee962e13dce517b4497927120e007ff74163",
        "node_copy.hpp": "0817b57e61e8d5d4f43d0d70d42f58cad002661c0ab827524fb5bedd3e33f518",
        "pair_meter.hpp": "eaae87fed362cd609a50c62676e3eeae431bb389b9216afe8fa27a7e1c5cdf9e",
        "support.hpp": "ee4b74c71c54b09503309d682ff0096ac08b751e6e9dd23b97994550352419a8",
    }

    version("1.0")

    depends_on("cxx", type="build")
    depends_on("mpi")
    depends_on("hip", when="+rocm")

    conflicts("+cuda", when="+rocm", msg="gpu_aware has one back end: choose +cuda or +rocm")

    sanity_check_is_file = ["bin/gpu_aware"]

    def _copy_source(self):
        for name, pinned in self.sources.items():
            path = os.path.join(_SOURCE, name)
            if not os.path.isfile(path):
                raise InstallError(
                    f"{path} is missing: gpu-aware-mpi is built from the checkout of its recipe"
                )
            with open(path, "rb") as file:
                found = hashlib.sha256(file.read()).hexdigest()
            if found != pinned:
                raise InstallError(
                    f"{path} has sha256 {found}, pinned is {pinned}: run `make spack-pin`"
                )
            copy(path, name)

    def install(self, spec, prefix):
        self._copy_source()
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
        if spec.satisfies("^[virtuals=mpi] cray-mpich") and spec["cray-mpich"].package.gtl_lib:
            gtl = spec["cray-mpich"].package.gtl_lib
            # The program has no reference to the GTL; MPI looks for it among the loaded libraries.
            libraries += [*gtl["ldflags"], "-Wl,--no-as-needed", *gtl["ldlibs"]]
        mkdirp(prefix.bin)
        compiler = Executable(spec["mpi"].mpicxx)
        compiler(*flags, "gpu_aware.cpp", "-o", prefix.bin.gpu_aware, *libraries)

    def _run(self, *args, **how):
        if self.spec.satisfies("+cuda") and not which("nvidia-smi"):
            raise SkipTest("no NVIDIA driver here")
        if self.spec.satisfies("+rocm") and not which("rocminfo"):
            raise SkipTest("no ROCm driver here")
        launcher = which(self.spec["mpi"].prefix.bin.mpirun, "mpirun", "srun", required=True)
        # An environment, not options: only Open MPI reads it.
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
            launcher.add_default_env(name, "1")
        # Two ranks on one GPU, if there is one, so that any machine will do.
        program = (self.prefix.bin.gpu_aware, "--ranks", "2", "--share-devices")
        output = launcher("-n", "2", *program, "--check", "64,64K", *args, output=str, **how)
        return launcher.returncode, output

    def test_two_ranks(self):
        """two ranks exchange data and every byte is right"""
        _, output = self._run("--sizes", "64K")
        assert '"event": "end", "wrong": 0' in output, output
        assert '"metric": "bandwidth"' in output, output

    def test_corruption(self):
        """one flipped byte is an error"""
        status, output = self._run("--inject", "corrupt", fail_on_error=False)
        assert status != 0, f"a corrupted payload passed: {output}"
