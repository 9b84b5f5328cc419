# SPDX-License-Identifier: MIT
"""Our own programs, and how they are compiled."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function

from busbar.data import PYTHON
from busbar.plain import stdout

from .configured import Configured

SOURCES = Path(__file__).with_name("src")
BUSY = str(SOURCES / "busy.sh")
"""Records beside a program what else uses the node."""
OWN_SESSION = (
    'mpi_session=$(mktemp -d -p "${PRTE_MCA_prte_tmpdir_base:-${TMPDIR:-/tmp}}")'
    " && export PRTE_MCA_prte_tmpdir_base=$mpi_session"
)
"""Gives Open MPI's mpirun a directory of its own: it names its session by its process number, and
where a killed mpirun of that number left one, its "listener thread failed to start"."""
AT_END = 'cat busy-record.* 2>/dev/null; rm -rf busy-record.* "${mpi_session:-}"'
"""Prints what was recorded of others; there is no file where the recorder could not start."""


class BuildProgram(Configured, rfm.CompileOnlyRegressionTest, special=True):
    """Compiles one of our programs for each environment, for the back end of its stack."""

    sourcesdir = str(SOURCES)
    build_system: Any = "SingleSource"
    build_locally = True

    def compiler(self) -> str:
        """Return what compiles it."""
        return self.current_environ.cxx

    @run_before("compile")
    def set_flags(self) -> None:
        """Set the command line of the compiler."""
        environment = self.environment
        if environment.image:
            self.build_system = "CustomBuild"
            self.build_system.commands = ["true  # the image brings its programs"]
            return
        self.executable = Path(self.sourcepath).stem
        self.build_system.cxx = shlex.join([*PYTHON, "busbar.check.build", self.compiler()])
        self.build_system.cxxflags = ["-O2", "-std=c++17", "-pthread", *environment.cxxflags]
        self.build_system.ldflags = list(environment.ldflags)

    @sanity_function
    def built(self) -> object:
        if self.environment.image:
            return sn.assert_true(True)
        program = Path(self.stagedir, self.executable)
        for line in Path(self.stagedir, str(self.stdout.evaluate())).read_text().splitlines():
            if line.startswith("busbar: "):
                stdout().line(line)
        return sn.assert_true(program.exists(), msg=f"the compiler left no {program}")
