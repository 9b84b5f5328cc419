# SPDX-License-Identifier: MIT
"""UCX of Debian 12: a snapshot of the repository, without configure."""

from spack_repo.busbar.packages.ucx.package import Ucx as BusbarUcx

from spack.package import *


class Ucx(BusbarUcx):
    """UCX from Debian's archive."""

    version(
        "1.13.1",
        url="file:///usr/src/ucx_1.13.1.orig.tar.xz",
        sha256="1a88e09ca1b406c046a469c2ae271d2c330050b5664c0bcd9890e26c6ef09f3c",
    )

    for tool in ("autoconf", "automake", "libtool", "m4"):
        depends_on(tool, type="build")

    def autoreconf(self, spec, prefix):
        # Debian removes upstream's own debian/, whose templates configure fills in.
        mkdirp("debian")
        for name in ("rules.in", "control.in", "changelog.in", "compat", "copyright", "ucx.prerm"):
            touch(join_path("debian", name))
        Executable("./autogen.sh")()
