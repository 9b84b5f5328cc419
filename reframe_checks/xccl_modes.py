# SPDX-License-Identifier: MIT
"""Are the modes of RCCL that published results used really on, and do they gain the same?

$ all_reduce_perf -b 32 -e 1G -f 2 -g 1 -G 2 -w 20 -n 50
$ all_reduce_perf -b 8 -e 16G -f 2 -g 1
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import reframe as rfm
from reframe.core.builtins import parameter, run_after, run_before, variable

from busbar import site as sites
from busbar.engine.assertions import Problem
from busbar.engine.collect import show
from busbar.engine.expectation import expectation_of
from busbar.engine.launch import BenchLaunch
from busbar.engine.results import Result
from busbar.engine.run import of_launch
from busbar.tools.nccl_tests.rccl import not_in_use, too_small_gain
from busbar.tools.nccl_tests.request import CPX_SIZES, FEW_SIZES

from .xccl import XcclPerf

_OFF = "off.out"


class RcclMode(XcclPerf, special=True):
    """rccl-tests with the variables of one profile of the site's family, and without them."""

    valid_prog_environs = ["+xccl +rocm"]
    collective = parameter(["all_reduce"])
    size_set = parameter(["full"])
    sweeps = {"full": CPX_SIZES}
    keep_files = [*XcclPerf.keep_files, _OFF]
    near_gpus = False  # as published, the launcher binds
    #: The mode's name in the family; empty for the family's own environment.
    profile = variable(str, value="")
    #: Bus bandwidth with the mode over that without it, where no published bands say more.
    least_gain = variable(float, value=0.95)

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
        # One partition's memory is that of its NUMA domain.
        srun = self.job.launcher.registered_name == "srun"
        self.job.launcher.options += ["--cpu-bind=ldoms"] if srun else ["--bind-to", "numa"]

    def launches(self) -> list[BenchLaunch]:
        only = ",".join(map(str, range(self.ranks or self.gpus)))
        return [
            replace(launch, environment=(("ROCR_VISIBLE_DEVICES", only),))
            for launch in super().launches()
        ]

    @run_before("run")
    def run_without_the_mode(self) -> None:
        """First, into a file of its own: what it does without the mode is no fault to explain."""
        if not self.mode:
            return
        (launch,) = self.planned
        without = ["env", *(part for name in self.mode for part in ("-u", name))]
        without += [f"{name}={value}" for name, value in launch.environment]
        without += ["NCCL_DEBUG_FILE=off.%h.%p.log", *self.start_of(launch), *launch.command]
        self.prerun_cmds = [
            f"{shlex.join(without)} >{_OFF} 2>&1",
            f'echo "exit_status=$?" >>{_OFF}',
            *self.prerun_cmds,
        ]

    def problems(self, results: list[Result]) -> list[Result]:
        problems = self.wrong()
        if self.mode and self.shown:
            problems += self.gained()
        return [Result(self.name, verdict, message=text) for verdict, text in problems]

    def wrong(self) -> list[Problem]:
        """What RCCL's log should say of the mode and does not."""
        return [
            (verdict, f"the mode is not on: {text}")
            for launch, shown in zip(self.planned, self.shown, strict=False)
            for verdict, text in not_in_use(shown.facts, self.mode, launch.ranks)
        ]

    def gained(self) -> list[Problem]:
        """The mode against the run without it, at the largest size."""
        off = Path(self.stagedir, _OFF)
        text = off.read_text(errors="backslashreplace") if off.exists() else ""
        (launch,) = self.planned
        run = of_launch(self.known_run(), launch)
        environment = run.environment or {}
        without = {name: v for name, v in environment.items() if name not in self.mode}
        return list(
            too_small_gain(
                self.shown[0],
                show(_OFF, text.splitlines()),
                (expectation_of(run), expectation_of(replace(run, environment=without))),
                least=self.least_gain,
            )
        )


@rfm.simple_test
class xccl_mscclpp(RcclMode):  # noqa: N801 - ReFrame's test names are what users type
    """The eight partitions of one accelerator with MSCCL++ up to its threshold."""

    descr = "RCCL with MSCCL++ on eight partitions of one accelerator"
    valid_systems = ["+cpx"]
    ranks = parameter([8])
    profile = "mscclpp"
    # It is there to be faster; the site's bands of this harness know it with the mode only.
    least_gain = 1.05


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
