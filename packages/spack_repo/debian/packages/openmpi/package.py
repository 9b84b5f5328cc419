# SPDX-License-Identifier: MIT
"""Open MPI of Debian 13: the archive of the release, compressed again."""

from spack_repo.busbar.packages.openmpi.package import Openmpi as BusbarOpenmpi

from spack.package import *


class Openmpi(BusbarOpenmpi):
    """Open MPI from Debian's archive."""

    version(
        "5.0.7",
        url="file:///usr/src/openmpi_5.0.7.orig.tar.xz",
        sha256="97f10c04e9b9a1771db3fd005009e4c07afa3ce739f940e41eb0fc7397cb9473",
    )

    def test_example(self):
        """the examples of the release compile and run"""
        with working_dir(self._cached_tests_work_dir):
            # The `make` of the builtin recipe is defined in a build only.
            which("make", required=True)("all")
            for program in ("hello_c", "hello_mpifh", "hello_usempi", "hello_usempif08"):
                check_outputs("I am  ?0 of  ?1", which(program, required=True)(output=str))


# The patch of this release is on a web page, which cannot be read without a network.
for patches in Openmpi.patches.values():
    patches[:] = [patch for patch in patches if not hasattr(patch, "url")]
