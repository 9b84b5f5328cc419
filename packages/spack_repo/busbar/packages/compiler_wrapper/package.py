# SPDX-License-Identifier: MIT
"""Spack's compiler wrapper, from its repository."""

from spack_repo.builtin.packages.compiler_wrapper.package import (
    CompilerWrapper as BuiltinCompilerWrapper,
)

from spack.package import *


class CompilerWrapper(BuiltinCompilerWrapper):
    """The compiler wrapper at the commit of its release, so that a mirror of the git host is enough."""

    git = "https://github.com/spack/compiler-wrapper.git"

    version("1.0", commit="38a5ab4d55a49c9aebfe161dbc32aaabbfe370cf", preferred=True)
