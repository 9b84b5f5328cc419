# SPDX-License-Identifier: MIT
"""Are the modes of RCCL that published results used really on, and do they gain the same?"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import reframe as rfm
from reframe.core.builtins import parameter, run_after, run_before, variable

from busbar import site as sites
from busbar.check.launch import Launch
from busbar.check.results import Result
from busbar.verdict import Verdict

from .base import Judgement
from .xccl import XcclPerf


class RcclMode(XcclPerf, special=True):
    """rccl-tests with the variables of one profile of the site's family."""

    valid_prog_environs = ["+xccl +rocm"]
    collective = parameter(["all_reduce"])
    size_set = parameter(["full"])
    # Published for CPX: 2 cycles, 20 warm-up rounds, 50 rounds, from 32 bytes.
    size_options: ClassVar = {"full": "-b 32 -e 1G -f 2 -g 1 -G 2 -w 20 -n 50"}
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

    @run_before("run")
    def bind_to_numa(self) -> None:
        # One partition's memory is that of its NUMA domain.
        srun = self.job.launcher.registered_name == "srun"
        self.job.launcher.options += ["--cpu-bind=ldoms"] if srun else ["--bind-to", "numa"]

    def launches(self) -> list[Launch]:
        only = ",".join(map(str, range(self.ranks or self.gpus)))
        return [
            Launch(**{**vars(launch), "environment": (("ROCR_VISIBLE_DEVICES", only),)})
            for launch in super().launches()
        ]

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        judged = super().judgement(output, errors)
        return Judgement([*judged.results, *map(self.failed, self.wrong())], judged.versions)

    def wrong(self) -> list[str]:
        """Variables of the mode that RCCL's log does not show."""
        seen = {name for shown in self.shown for name in shown.facts.environment}
        return [
            f"the mode is not on: the log does not show {name}"
            for name in self.mode
            if name.startswith(("RCCL_", "NCCL_")) and name not in seen
        ]

    def failed(self, message: str) -> Result:
        """A result of the whole run."""
        return Result(self.name, Verdict.FAILED, message=message)


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
    valid_systems = ["-cpx"]
    size_options: ClassVar = {"full": "-b 8 -e 16G -f 2 -g 1"}


@rfm.simple_test
class xccl_npkit(RcclMode):  # noqa: N801 - see above
    """Collects the trace of an RCCL that was built with NPKit, one GPU a process."""

    descr = "RCCL's NPKit trace"
    valid_prog_environs = ["+xccl +rocm +npkit"]
    profile = "npkit"
    size_options: ClassVar = {"full": "-b 1M -e 1M -f 2 -g 1 -n 1 -w 0"}

    @run_before("run")
    def make_directory(self) -> None:
        self.prerun_cmds = ['mkdir -p "$NPKIT_DUMP_DIR"', *self.prerun_cmds]

    def wrong(self) -> list[str]:
        traces = list(Path(self.stagedir, self.mode.get("NPKIT_DUMP_DIR", "npkit")).glob("*"))
        return [*super().wrong(), *([] if traces else ["NPKit left no trace"])]
