# SPDX-License-Identifier: MIT
"""The libfabric plugin for NCCL and for RCCL."""

import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class AwsOfiNccl(AutotoolsPackage):
    """Lets NCCL and RCCL use libfabric: EFA, Slingshot."""

    homepage = "https://github.com/aws/aws-ofi-nccl"
    url = (
        "https://github.com/aws/aws-ofi-nccl/releases/download/v1.19.0/aws-ofi-nccl-1.19.0.tar.gz"
    )

    license("Apache-2.0")

    # Checksums: builtin v2026.06.0 (1.19.0), builtin v2025.11.0 (the others).
    version("1.19.0", sha256="fd8ecd15f0de88e07b2194637938dadcf247ad3b5150651dfd0bb0c4bb32ff3c")
    version("1.17.1", sha256="15a3b5db51075d20b2cb255b99668a7161779fdf5455436e3bea02d59a04685a")
    version("1.7.4", sha256="472bbc977ce37d0cf9239b8e366f4f247226a984eb8c487aadd884af53f00e13")

    variant("cuda", default=False, description="Plugin for NCCL")
    variant("rocm", default=False, description="Plugin for RCCL")

    requires("+cuda", "+rocm", policy="one_of", msg="choose +cuda (NCCL) or +rocm (RCCL)")
    conflicts("+rocm", when="@:1.17", msg="the plugin speaks to RCCL from 1.18 on")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="@1.15:")

    depends_on("autoconf", type="build", when="@:1.18")
    depends_on("automake", type="build", when="@:1.18")
    depends_on("libtool", type="build", when="@:1.18")

    depends_on("hwloc")
    depends_on("libfabric")
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
        return [join_path("lib", self.plugin), join_path("bin", "nccl_message_transfer")]

    def url_for_version(self, version):
        # Older sources are GitHub's archive of the tag; -aws is the branch for EC2.
        if version >= Version("1.19"):
            return super().url_for_version(version)
        suffix = "-aws" if version < Version("1.14") else ""
        return f"https://github.com/aws/aws-ofi-nccl/archive/v{version}{suffix}.tar.gz"

    def configure_args(self):
        args = ["--enable-tests"]
        args += [
            f"--with-{name}={self.spec[name].prefix}" for name in ("libfabric", "hwloc", "mpi")
        ]
        if self.spec.satisfies("+cuda"):
            args += [f"--with-{name}={self.spec[name].prefix}" for name in ("cuda", "nccl")]
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
