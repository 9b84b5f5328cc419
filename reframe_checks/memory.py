# SPDX-License-Identifier: MIT
"""What does a plain copy reach, without MPI? It is the ceiling that MPI is judged against.

$ memory 4 256M
"""

from __future__ import annotations

from pathlib import Path

import reframe as rfm
from reframe.core.builtins import fixture, parameter, run_before

from busbar.engine.launch import BenchLaunch
from busbar.tools.memory import operations, size_of
from busbar.units import option_bytes

from .bench import BenchCheck, Launches
from .programs import BuildProgram


class BuildMemory(BuildProgram):
    """The program that copies."""

    sourcepath = "memory.cpp"


@rfm.simple_test
class memory(BenchCheck):  # noqa: N801 - ReFrame's test names are what users type
    """Host memory with one core and with all, each GPU's own, to and from the host, every pair."""

    descr = "plain copies: host, GPU, host to GPU, GPU to GPU"
    valid_prog_environs = ["+memory"]
    copies = fixture(BuildMemory, scope="environment")
    size_set = parameter(["quick"])
    own_program = True

    @run_before("run")
    def use_all_cores(self) -> None:
        self.leave_all_cores()

    def launches(self) -> Launches:
        gpus = self.gpus if self.on_gpu else 0
        size = size_of(gpus)
        program = str(Path(self.copies.stagedir, "memory"))
        yield BenchLaunch(
            bench="memory",
            command=(program, str(gpus), option_bytes(size)),
            ranks=1,
            sizes=(size,),
            operations=operations(gpus),
            placed=False,
            validated=True,
            bands=self.on_gpu,
            end=True,
            nonce=self.nonce,
        )
