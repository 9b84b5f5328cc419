# SPDX-License-Identifier: MIT
"""Does a copy reach what a copy should?

$ copybench 1048576
"""

from __future__ import annotations

import reframe as rfm
from reframe.core.builtins import parameter

from busbar.engine.launch import BenchLaunch
from busbar.units import MIB

from .bench import BenchCheck


@rfm.simple_test
class copybench(BenchCheck):  # noqa: N801 - ReFrame's test names are what users type
    """One size."""

    descr = "copies of 1 MiB"
    valid_prog_environs = ["+copybench"]  # noqa: RUF012 - as ReFrame's tests are written
    size_set = parameter(["quick"])

    def launches(self) -> list[BenchLaunch]:
        return [
            BenchLaunch(
                "copybench", (self.program("copybench"), str(MIB)), 1, (MIB,), validated=True
            )
        ]
