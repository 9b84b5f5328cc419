# SPDX-License-Identifier: MIT
"""NCCL of the lane ucx-current."""

from spack_repo.builtin.packages.nccl.package import Nccl as BuiltinNccl

from spack.package import *


class Nccl(BuiltinNccl):
    """NCCL with the releases that came after builtin v2026.06.0."""

    license("Apache-2.0 AND BSD-3-Clause", when="@2.32:")

    # Commit of the tag v2.32.3-1, as the issues of NVIDIA/nccl and public builds name it.
    version("2.32.3-1", commit="12df1a11afad322be5a204a2db890161cbf8131d")
