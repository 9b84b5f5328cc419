# SPDX-License-Identifier: MIT
"""Run Spack as on a host of another CPU: as_host.py TARGET ARGUMENT...

Spack solves for targets of its host's family only. The environment is that of `.spack/env.sh`.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.environ["SPACK_ROOT"], "lib", "spack"))

import spack.vendor.archspec.cpu

TARGET = spack.vendor.archspec.cpu.TARGETS[sys.argv.pop(1)]
spack.vendor.archspec.cpu.host = lambda: TARGET

import spack.main  # noqa: E402 - it asks for the host when it is loaded

sys.exit(spack.main.main())
