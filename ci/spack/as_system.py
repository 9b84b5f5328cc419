# SPDX-License-Identifier: MIT
"""Run Spack as on another system: as_system.py SYSTEM CPU ARGUMENT...

SYSTEM is a directory with the scope of a system and its `os-release`, CPU a target or empty. Spack
solves only for the operating system and the family of CPUs of its host, and asks the compiler for
the C library. A lock must not depend on the machine that writes it, so all of these are imitated.
"""

import os
import shlex
import sys
from pathlib import Path

SYSTEM, CPU = Path(sys.argv[1]).resolve(), sys.argv[2]
del sys.argv[1:3]
os.environ["UNIXCONFDIR"] = str(SYSTEM)  # where Spack's module `distro` looks for os-release
sys.path.insert(0, os.path.join(os.environ["SPACK_ROOT"], "lib", "spack"))

import spack.vendor.archspec.cpu  # noqa: E402

if CPU:
    TARGET = spack.vendor.archspec.cpu.TARGETS[CPU]
    spack.vendor.archspec.cpu.host = lambda: TARGET

import spack.compilers.libraries  # noqa: E402 - Spack asks for the host when it is loaded
import spack.main  # noqa: E402
import spack.solver.asp  # noqa: E402
import spack.spec  # noqa: E402

release = dict(
    line.split("=", 1) for line in shlex.split((SYSTEM / "os-release").read_text(), comments=True)
)
DETECTED = spack.compilers.libraries.CompilerPropertyDetector.default_libc
COMPILERS = ("gcc", "cce")
RUNS = spack.solver.asp.c_compiler_runs


def default_libc(self):
    """Return the C library of the system for its own compilers."""
    if self.spec.name not in COMPILERS:
        return DETECTED(self)
    libc = spack.spec.Spec(f"glibc@={release['GLIBC']}")
    libc.external_path = "/usr"
    return libc


spack.compilers.libraries.CompilerPropertyDetector.default_libc = default_libc
spack.solver.asp.c_compiler_runs = lambda spec: spec.name in COMPILERS or RUNS(spec)

sys.exit(spack.main.main())
