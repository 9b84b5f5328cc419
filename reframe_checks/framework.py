# SPDX-License-Identifier: MIT
"""What do users of PyTorch see of the links?"""

from __future__ import annotations

from typing import ClassVar

import reframe as rfm
from reframe.core.builtins import parameter

from busbar.check.launch import Launch
from busbar.expect import COLLECTIVES
from busbar.expect import collective as expect_collective
from busbar.explain.model import Reading
from busbar.units import parse_bytes
from busbar.verdict import Expectation

from .base import SOURCES
from .xccl import XcclPerf, ways


@rfm.simple_test
class framework(XcclPerf):  # noqa: N801 - ReFrame's test names are what users type
    """All collectives through torch.distributed, each result checked."""

    descr = "collectives through PyTorch on all GPUs of a node"
    valid_prog_environs = ["+torch +cuda", "+torch +rocm"]
    collective = parameter(["all"])
    size_set = parameter(["quick"])
    size_options: ClassVar = {"quick": "--sizes 16M,256M,1G"}

    def launches(self) -> list[Launch]:
        options = self.options()
        sizes = options[options.index("--sizes") + 1]
        program = str(SOURCES / "torch_collectives.py")
        return [
            Launch(
                bench="torch_collectives",
                command=(
                    *(self.program("torch"), program, "--ranks", str(self.gpus)),
                    *("--collectives", ",".join(COLLECTIVES), *options),
                ),
                ranks=self.gpus,
                sizes=tuple(parse_bytes(size) for size in sizes.split(",")),
                gpus=tuple(range(self.gpus)),
                transports=ways(self.site, self.current_partition.name, self.nodes),
                log="nccl",
                validated=True,
                end=True,
            )
        ]

    def expect(self, launch: Launch, reading: Reading) -> Expectation:
        return expect_collective(
            self.site,
            bench=reading.operation,
            nbytes=reading.nbytes,
            ranks=launch.ranks,
            harness="pytorch",
            lane=self.lane,
            environment=self.settings(launch),
            partition=self.current_partition.name,
        )
