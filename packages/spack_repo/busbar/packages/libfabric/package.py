# SPDX-License-Identifier: MIT
"""libfabric of the lane ucx-current."""

from spack_repo.builtin.packages.libfabric.package import Libfabric as BuiltinLibfabric

from spack.package import *


class Libfabric(BuiltinLibfabric):
    """libfabric with the releases that came after builtin v2026.06.0."""

    # Checksum: homebrew-core, Formula/lib/libfabric.rb.
    version("2.6.0", sha256="1ee2ab6eb16462c0fe7a836f9df52b8f12309dfee3f3774aa93a86f521a8e8b1")
