# SPDX-License-Identifier: MIT
"""UCX of the lane ucx-current, and what older releases cannot be built with."""

from spack_repo.builtin.packages.ucx.package import Ucx as BuiltinUcx

from spack.package import *


class Ucx(BuiltinUcx):
    """UCX with the releases that came after builtin v2026.06.0."""

    # Checksum: NVIDIA's ai-dynamo/velo, crates/ucx-rs/Cargo.toml, which contains this archive.
    version("1.22.0", sha256="258941cddd14ca60d38c0d31b9b09ec1052c901086841011a498da8b55a3cb24")

    conflicts(
        "^cuda@12:",
        when="@:1.14.0 +cuda",
        msg="it calls cuGetProcAddress with the signature of CUDA 11 (openucx/ucx#8936)",
    )
    conflicts(
        "^cuda@13:",
        when="@:1.18 +cuda",
        msg="CUDA 13 has no PFN_cuMemGetHandleForAddressRange without a version",
    )

    sanity_check_is_file = ["bin/ucx_info", "lib/libucp.so", "lib/libuct.so"]

    def test_transports(self):
        """the transports that were asked for are in the library"""
        ucx_info = which(self.prefix.bin.ucx_info, required=True)
        found = ucx_info("-b", output=str.split, error=str.split)
        wanted = {"+cuda": "HAVE_CUDA", "+rocm": "HAVE_ROCM", "+gdrcopy": "HAVE_GDR_COPY"}
        for variant, macro in wanted.items():
            if self.spec.satisfies(variant):
                assert f"#define {macro} " in found, f"UCX was built without {macro}"
