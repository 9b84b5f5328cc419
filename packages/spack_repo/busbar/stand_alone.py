# SPDX-License-Identifier: MIT
"""What the stand-alone tests of several recipes share."""

import os

from spack.package import *


def needed(program):
    """Return the libraries that a program names; none is loaded, so it works without a driver."""
    return which("readelf", required=True)("-d", program, output=str)


def check_linkage(program, *libraries):
    """Assert that a program names libraries, given by the beginning of their names."""
    found = needed(program)
    missing = [library for library in libraries if f"[{library}" not in found]
    assert not missing, f"{program} does not link {', '.join(missing)}"


def gpu_runtime(spec):
    """Return the library of the GPU vendor that a package uses, in a list."""
    libraries = {"+cuda": "libcudart.so", "+rocm": "libamdhip64.so"}
    return [library for variant, library in libraries.items() if spec.satisfies(variant)]


def require_driver(spec):
    """Skip a test that needs a GPU where there is no driver."""
    # The devices, not programs: those are installed on machines without a GPU, too.
    for package, device in (("cuda", "/dev/nvidiactl"), ("hip", "/dev/kfd")):
        if spec.satisfies(f"^{package}") and not os.path.exists(device):
            raise SkipTest(f"no {device}: no GPU driver")


def as_root(program):
    """Let a program start ranks as root, which Open MPI refuses otherwise."""
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        program.add_default_env(name, "1")
    return program


def launcher(spec):
    """Return the program that starts the ranks of a package."""
    return as_root(which(spec["mpi"].prefix.bin.mpirun, "srun", required=True))
