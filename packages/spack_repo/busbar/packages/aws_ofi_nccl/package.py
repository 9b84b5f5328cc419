# SPDX-License-Identifier: MIT
"""The libfabric plugin for NCCL and for RCCL."""

import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class AwsOfiNccl(AutotoolsPackage):
    """Lets NCCL and RCCL use libfabric: EFA, Slingshot."""

    homepage = "https://github.com/aws/aws-ofi-nccl"
    url = (
        "https://github.com/aws/aws-ofi-nccl/releases/download/v1.21.1/aws-ofi-nccl-1.21.1.tar.gz"
    )
    git = "https://github.com/aws/aws-ofi-nccl.git"

    license("Apache-2.0")

    # Checksum: the page of the release.
    version(
        "1.21.1",
        sha512="ab7aa6b6f2f5117252e7603cf39458ec9b2d03a4bc2d8b36ac61f0b41287bcea"
        "3de619ed2d1638b4258694f48380971a2c60a4eac8e230097e80de2bb8e04e75",
    )
    # Checksum: builtin v2026.06.0.
    version("1.19.0", sha256="fd8ecd15f0de88e07b2194637938dadcf247ad3b5150651dfd0bb0c4bb32ff3c")

    variant("cuda", default=True, description="Plugin for NCCL")
    variant("rocm", default=False, description="Plugin for RCCL")
    variant("aws", default=False, description="Tuning for the instances of EC2")
    variant("tests", default=False, when="+cuda", description="Programs that test the plugin")
    variant("trace", default=False, description="Print trace messages")

    requires("+cuda", "+rocm", policy="one_of", msg="choose +cuda (NCCL) or ~cuda +rocm (RCCL)")

    depends_on("c", type="build")
    depends_on("cxx", type="build")

    depends_on("hwloc")
    depends_on("libfabric")
    depends_on("libfabric@1.22:", when="@1.20: +aws")
    depends_on("mpi")
    with when("+cuda"):
        depends_on("cuda")
        depends_on("nccl")
    with when("+rocm"):
        depends_on("hip")
        depends_on("rccl")

    @property
    def plugin(self):
        """The name that the collective library looks for."""
        return "librccl-net.so" if self.spec.satisfies("+rocm") else "libnccl-net.so"

    @property
    def sanity_check_is_file(self):
        files = [join_path("lib", self.plugin)]
        if self.spec.satisfies("+aws +cuda"):
            files.append(join_path("lib", "libnccl-ofi-tuner.so"))
        if self.spec.satisfies("+tests"):
            files.append(join_path("bin", "nccl_message_transfer"))
        return files

    def configure_args(self):
        # What is not named here, configure finds on the build host: EC2 by its DMI, HIP in /usr.
        args = self.enable_or_disable("platform-aws", variant="aws")
        args += self.enable_or_disable("tests") + self.enable_or_disable("trace")
        args += [
            f"--with-{name}={self.spec[name].prefix}" for name in ("libfabric", "hwloc", "mpi")
        ]
        if self.spec.satisfies("+cuda"):
            args += [f"--with-{name}={self.spec[name].prefix}" for name in ("cuda", "nccl")]
            args.append("--with-rocm=no")
        else:
            args.append(f"--with-rocm={self.spec['hip'].prefix}")
        return args

    @run_after("install")
    def name_for_rccl(self):
        """RCCL looks for librccl-net.so; some releases install only NCCL's name."""
        wanted = join_path(self.prefix.lib, self.plugin)
        if self.spec.satisfies("+rocm") and not os.path.exists(wanted):
            os.symlink("libnccl-net.so", wanted)

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.prepend_path("LD_LIBRARY_PATH", self.prefix.lib)

    def test_plugin_loads(self):
        """the plugin and what it needs can be loaded"""
        import ctypes

        ctypes.CDLL(join_path(self.prefix.lib, self.plugin))
