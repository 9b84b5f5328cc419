# SPDX-License-Identifier: MIT
"""``gpu_aware`` of an image, started by ReFrame through Slurm and Apptainer."""

from __future__ import annotations

import json
import os
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, run_before, sanity_function

from busbar.check.judge import Asked, judge
from busbar.expect import NoExpectation
from busbar.parse.gpu_aware import parse
from busbar.verdict import Verdict

# Image, program and options of `apptainer exec` for each way to run it, as preflight gave them.
_ASKED = json.loads(os.environ["BUSBAR_IN_IMAGE"])


@rfm.simple_test
class in_image(rfm.RunOnlyRegressionTest):  # noqa: N801 - ReFrame's test names are lower case
    mpi = parameter(sorted(_ASKED["options"]))
    nodes = parameter([2, 4])
    valid_systems = ["lab:nodes"]  # noqa: RUF012 - ReFrame copies it
    valid_prog_environs = ["image"]  # noqa: RUF012
    container_platform = "Apptainer"
    num_tasks_per_node = 1
    time_limit = "1m"

    @run_before("run")
    def set_command(self) -> None:
        self.num_tasks = self.nodes
        self.job.launcher.options = ["--mpi=pmix"]
        self.container_platform.image = _ASKED["image"]
        self.container_platform.options = _ASKED["options"][self.mpi]
        self.container_platform.command = (
            f"{_ASKED['program']} --ranks={self.num_tasks} --buffers=HH --check=1,4099"
        )

    @sanity_function
    def all_ranks_are_one_job_and_the_data_is_right(self) -> object:
        lines = Path(self.stagedir, self.stdout.evaluate()).read_text().splitlines()
        asked = Asked(self.name, self.num_tasks, ("H H",), check_sizes=(1, 4099))

        def no_band(_: object) -> None:
            raise NoExpectation("nothing is measured here")

        results = judge(asked, parse(lines), lines, no_band)
        wrong = [result for result in results if result.verdict is not Verdict.PASS]
        hosts = {rank.host for rank in parse(lines).ranks}
        sn.evaluate(sn.assert_eq(len(hosts), self.nodes))
        return sn.assert_true(results and not wrong, msg=str(wrong))
