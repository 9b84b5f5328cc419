# SPDX-License-Identifier: MIT
"""libfabric of Debian 13: a snapshot of the repository, without configure."""

from spack_repo.builtin.packages.libfabric.package import Libfabric as BuiltinLibfabric

from spack.package import *


class Libfabric(BuiltinLibfabric):
    """libfabric from Debian's archive."""

    force_autoreconf = True

    version(
        "2.1.0",
        url="file:///usr/src/libfabric_2.1.0.orig.tar.xz",
        sha256="1a66369772d5bb151737214af1c478993e969cf298e8f9ed369e7a2ab8d8c6df",
    )

    for tool in ("autoconf", "automake", "libtool", "m4"):
        depends_on(tool, type="build")
