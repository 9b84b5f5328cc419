# SPDX-License-Identifier: MIT
"""Which node, NIC, link or uplink of many is slow? All nodes measure in pairs at the same time."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import reframe as rfm
from reframe.core.backends import getlauncher
from reframe.core.builtins import run_after, run_before, variable

from busbar.engine.results import Result
from busbar.verdict import EXIT_UNJUDGED, Verdict

from .base import BusbarCheck
from .judging import Judgement

_SCHEDULERS = ("slurm", "squeue", "allocation")
_DELIVERIES = ("wheels", "spack", "modules")
_DEADLINE = "50m"
"""Before the time limit, so that the verdict is still written."""
_OPEN = {Verdict.UNJUDGED: "nothing is slow, but neither a limit nor a band says what is fast"}
_LOG = "see sweep/srun.log"


@rfm.simple_test
class sweep(BusbarCheck):  # noqa: N801 - ReFrame's test names are what users type
    """``busbar sweep run`` inside the job; with ``-S sweep.nodes=16`` on fewer nodes."""

    descr = "pairs of many nodes at the same time"
    valid_systems = ["+remote"]
    valid_prog_environs = ["+memory"]
    tags = {"sweep"}
    time_limit = "1h"
    any_nodes = True
    nodes = "all"
    #: Rounds of the first pass; 0 takes the default of the command.
    rounds = variable(int, value=0)
    #: GB/s between two nodes with all NICs; 0 takes the bands of the site.
    limit = variable(float, value=0.0)
    #: More options of the command.
    more_options = variable(str, value="")

    @run_after("setup")
    def refuse_others(self) -> None:
        """Skip what the command cannot do."""
        scheduler = self.current_partition.scheduler.registered_name
        self.skip_if(scheduler not in _SCHEDULERS, "a sweep needs Slurm")
        delivery = self.environment.delivery
        self.skip_if(delivery not in _DELIVERIES, f"a sweep does not run by delivery {delivery}")

    @run_before("run")
    def set_command(self) -> None:
        """Start the driver on the first node of the job; it starts the ranks itself."""
        self.num_tasks, self.num_tasks_per_node = self.node_count, 1
        self.job.num_tasks, self.job.num_tasks_per_node = self.num_tasks, 1
        self.job.launcher = getlauncher("local")()
        values = {
            "site": self.partition.site,
            "partition": self.current_partition.name,
            "lane": self.environment.lane,
            "delivery": self.environment.delivery,
            "nodelist": ",".join(self.job.pin_nodes or ()),
            "rounds": self.rounds or "",
            "limit": self.limit or "",
            "deadline": _DEADLINE,
            "output": "sweep",
        }
        words = ["-P", "-m", "busbar", "sweep", "run", "--json"]
        words += [f"--{name}={value}" for name, value in values.items() if str(value)]
        self.executable = shlex.quote(sys.executable)
        # These statuses are verdicts, which the document says better than a job that failed.
        verdict = f"|| [ $? -le {EXIT_UNJUDGED} ]"
        self.executable_opts = [*map(shlex.quote, words), self.more_options, verdict]

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        return Judgement(results_of(self.name, output, errors), {})


def results_of(check: str, output: Sequence[str], errors: Sequence[str]) -> list[Result]:
    """Return the results in the document that the command printed."""
    text = "\n".join(output)
    try:
        found, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
        return list(_rows(check, found))
    except (ValueError, KeyError, TypeError):
        reason = next((line for line in reversed(errors) if "busbar" in line), "no message")
        message = f"the sweep printed no verdict: {reason}"
        return [Result(check, Verdict.FAILED, message=message)]


def _rows(check: str, found: Mapping[str, Any]) -> Iterator[Result]:
    """Yield what is slow, what is wrong or not measured, and the verdict if nothing is."""
    if found["schema"] != "busbar-sweep-run/1":
        raise ValueError("another document")
    verdict = Verdict(found["verdict"])
    for one in found["accused"]:
        message = f"{one['kind']} {one['id']} is slow: {one['evidence']}"
        where = ",".join(one["nodes"])
        yield Result(check, Verdict.DEGRADED, where, metric="bandwidth", message=message)
    if wrong := found["wrong_data"]:
        message = f"wrong data between {', '.join(wrong)}"
        yield Result(check, Verdict.FAILED, metric="correctness", message=message)
    if missing := found["unmeasured"]:
        worst = verdict if verdict in (Verdict.FAILED, Verdict.NOT_RUN) else Verdict.UNKNOWN
        why = f" ({found['stopped']})" if found["stopped"] else ""
        yield Result(check, worst, message=f"not measured: {', '.join(missing)}{why}")
    if not (found["accused"] or wrong or missing):
        message = "" if verdict is Verdict.PASS else found["stopped"] or _OPEN.get(verdict, _LOG)
        where, rate = ",".join(found["nodes"]), found["median_gb_per_s"]
        yield Result(check, verdict, where, metric="bandwidth", gb_per_s=rate, message=message)
