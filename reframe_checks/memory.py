# SPDX-License-Identifier: MIT
"""What does a plain copy reach, without MPI? It is the ceiling that MPI is judged against."""

from __future__ import annotations

from pathlib import Path

import reframe as rfm
from reframe.core.builtins import fixture, parameter

from busbar.expect import NoExpectation, point_to_point
from busbar.expect.expectation import Expectation
from busbar.judge.launch import BenchLaunch
from busbar.output.reading import Reading
from busbar.units import parse_bytes

from .base import BuildProgram
from .bench import BenchCheck


class BuildMemory(BuildProgram):
    """The program that copies."""

    sourcepath = "memory.cpp"


@rfm.simple_test
class memory(BenchCheck):  # noqa: N801 - ReFrame's test names are what users type
    """Host memory with one core and with all, each GPU's own memory, and every pair of GPUs."""

    descr = "plain copies: host, GPU, GPU to GPU"
    valid_prog_environs = ["+memory"]
    copies = fixture(BuildMemory, scope="environment")
    size_set = parameter(["quick"])

    def launches(self) -> list[BenchLaunch]:
        gpus = self.gpus if self.on_gpu else 0
        size = "256M" if self.on_gpu else "64M"
        return [
            BenchLaunch(
                bench="memory",
                command=(str(Path(self.copies.stagedir, "memory")), str(gpus), size),
                ranks=1,
                sizes=(parse_bytes(size),),
                placed=False,
                validated=True,
                bands=self.on_gpu,
                end=True,
            )
        ]

    def expect(self, launch: BenchLaunch, reading: Reading) -> Expectation:
        source, target = reading.source, reading.target
        if source is None or target is None or source == target:
            raise NoExpectation("a copy within one memory uses no link")
        return point_to_point(
            self.site,
            bench="osu_bw",
            src=source,
            dst=target,
            nbytes=reading.nbytes,
            lane=self.lane,
            environment=self.settings(launch),
            partition=self.current_partition.name,
        )
