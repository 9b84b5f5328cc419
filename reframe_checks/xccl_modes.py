# SPDX-License-Identifier: MIT
"""Are the modes of RCCL that published results used really on, and as fast?

$ all_reduce_perf -b 32 -e 1G -f 2 -g 1 -G 2 -w 20 -n 50
$ all_reduce_perf -b 8 -e 16G -f 2 -g 1
"""

from __future__ import annotations

from dataclasses import replace

import reframe as rfm
from reframe.core.builtins import parameter, run_after, variable

from busbar import site as sites
from busbar.engine.results import Result
from busbar.tools.nccl_tests.rccl import not_in_use
from busbar.tools.nccl_tests.request import CPX_SIZES, FEW_SIZES

from .bench import Launches
from .xccl import XcclPerf


class RcclMode(XcclPerf, special=True):
    """rccl-tests with the variables of one profile of the site's family."""

    valid_prog_environs = ["+xccl +rocm"]
    collective = parameter(["all_reduce"])
    size_set = parameter(["full"])
    sweeps = {"full": CPX_SIZES}
    near_gpus = False  # as published, the launcher binds
    #: The mode's name in the family; empty for the family's own environment.
    profile = variable(str, value="")

    @run_after("setup")
    def set_mode(self) -> None:
        usual = sites.environment(self.site, stack="rocm", lane=self.lane)
        chosen = sites.environment(
            self.site,
            stack="rocm",
            lane=self.lane,
            profile=self.profile or None,
            gpus=self.ranks or self.gpus,
        )
        self.mode = {name: v for name, v in chosen.items() if usual.get(name) != v}
        self.env_vars = {**dict(self.env_vars), **self.mode}

    @run_after("setup")
    def bind_to_numa(self) -> None:
        # The memory of one partition is its NUMA domain.
        srun = self.job.launcher.registered_name == "srun"
        self.job.launcher.options += ["--cpu-bind=ldoms"] if srun else ["--bind-to", "numa"]

    def launches(self) -> Launches:
        only = ",".join(map(str, range(self.ranks or self.gpus)))
        for launch in super().launches():
            yield replace(launch, environment=(("ROCR_VISIBLE_DEVICES", only),))

    def problems(self, results: list[Result]) -> list[Result]:
        """What RCCL's log should say of the mode and does not."""
        return [
            Result(self.name, verdict, message=f"the mode is not on: {text}")
            for launch, shown in zip(self.planned, self.shown, strict=False)
            for verdict, text in not_in_use(shown.facts, self.mode, launch.ranks)
        ]


@rfm.simple_test
class xccl_mscclpp(RcclMode):  # noqa: N801 - ReFrame's test names are what users type
    """The eight partitions of one accelerator with MSCCL++ up to its threshold."""

    descr = "RCCL with MSCCL++ on eight partitions of one accelerator"
    valid_systems = ["+cpx"]
    ranks = parameter([8])
    profile = "mscclpp"


@rfm.simple_test
class xccl_cpx(RcclMode):  # noqa: N801 - see above
    """All partitions of a node, without MSCCL++."""

    descr = "RCCL on all partitions of a node"
    valid_systems = ["+cpx"]


@rfm.simple_test
class xccl_few(RcclMode):  # noqa: N801 - see above
    """Fewer GPUs than the node has, for which RCCL takes too few channels by itself."""

    descr = "RCCL on two and on four GPUs with NCCL_MIN_NCHANNELS"
    ranks = parameter([2, 4])
    valid_systems = ["+pair -cpx"]
    sweeps = {"full": FEW_SIZES}
