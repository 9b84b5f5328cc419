# SPDX-License-Identifier: MIT
"""Checks that run benchmarks of others: a job is a list of launches, each judged by itself.

A check's own file has the command line of each launch. The job script prints it, sets the
variables of the launch, starts it by the launcher and ``placed.sh``, and prints its exit status.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeAlias

from reframe.core.builtins import parameter, run_after, run_before, variable
from reframe.core.exceptions import ReframeError

from busbar import site as sites
from busbar.check.causes import show_launch, source_of
from busbar.engine.collect import split
from busbar.engine.judge import JudgedLaunch, judge
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Evidence
from busbar.engine.results import Result
from busbar.engine.run import Run
from busbar.engine.tool import pair_of
from busbar.parse.events import Start
from busbar.parse.text import Source
from busbar.site.delivery import GPU_STACKS
from busbar.tools.nccl_tests.request import ways
from busbar.verdict import Verdict

from .base import BusbarCheck
from .judging import Judgement
from .programs import AT_END, BUSY, SOURCES

ASKED = "asked.json"
"""What a check asks of each launch; it is kept beside the results."""
PLACED = str(SOURCES / "placed.sh")
PAIR = str(SOURCES / "pair.sh")
NEAR_GPU = str(SOURCES / "near_gpu.sh")
TAGS = {"quick": {"gate", "nightly"}, "nightly": {"nightly"}, "full": {"full"}}
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES"}
_DRIVERS = {"cuda": "/sys/bus/pci/drivers/nvidia", "rocm": "/sys/bus/pci/drivers/amdgpu"}
REDIRECTED = "busbar: standard error goes to standard output from here"
_ENDED = ("status=$?", AT_END, 'echo "exit_status=$status"')

Launches: TypeAlias = Iterable[BenchLaunch]
"""The launches of a job, one after the other."""


class LaunchesCheck(BusbarCheck, special=True):
    """A concrete check gives :meth:`launches`."""

    keep_files = [*BusbarCheck.keep_files, ASKED]
    #: More options of the benchmark.
    more_options = variable(str, value="")
    #: Bind each rank to all CPUs near its GPU: one core is too few for a rank with helper threads.
    near_gpus = False
    #: What the job runs, and what came of it.
    planned: Sequence[BenchLaunch] = ()
    judged: Sequence[JudgedLaunch] = ()

    def launches(self) -> Launches:
        """What the job runs, one after the other."""
        raise NotImplementedError

    @property
    def shown(self) -> list[LaunchOutput]:
        """What the launches showed."""
        return [each.shown for each in self.judged]

    @run_after("setup")
    def leave_binding_to_script(self) -> None:
        """Keep the launcher from binding ranks to single cores."""
        if self.near_gpus:
            self.leave_all_cores()

    @property
    def gpus(self) -> int:
        """GPUs of a node."""
        return self.partition.gpus

    @property
    def harness(self) -> str | None:
        """What times the collectives, as bands name it."""
        return None

    @property
    def lane(self) -> str:
        """The lane of the environment."""
        return self.environment.lane

    def program(self, name: str) -> str:
        """The path of a benchmark, or its name where the PATH of the job finds it."""
        return self.environment.programs.get(name, name)

    def visible(self, *gpus: int) -> tuple[tuple[str, str], ...]:
        """The variable that shows ranks these GPUs, in this order."""
        name = _VISIBLE[GPU_STACKS[self.environment.stack]]
        return ((name, ",".join(map(str, gpus))),)

    def nccl_ways(self) -> tuple[str, ...]:
        """How NCCL's log names the ways that data should take."""
        return ways(self.site, nodes=self.node_count, partition=self.current_partition.name)

    @property
    def gpu_memory(self) -> str:
        """The kind of GPU memory, as OSU and UCX name it in their options."""
        return GPU_STACKS.get(self.environment.stack, "rocm")

    @property
    def added(self) -> list[str]:
        """The options that the user adds."""
        return words_of(self.more_options, "more_options")

    def known_run(self) -> Run:
        stack = self.environment.stack
        chosen = sites.environment(self.site, stack=stack, lane=self.lane)
        return replace(
            super().known_run(),
            harness=self.harness,
            environment={**chosen, **dict(self.env_vars)},
        )

    @run_before("run")
    def set_commands(self) -> None:
        """Each launch with its command line before it and its exit status after it."""
        self.planned = [*self.launches()]
        launches = [asdict(launch) for launch in self.planned]
        Path(self.stagedir, ASKED).write_text(json.dumps(launches, indent=1) + "\n")
        self.num_tasks = self.processes()
        self.num_tasks_per_node = self.num_tasks // self.node_count
        self.job.num_tasks = self.num_tasks
        self.job.num_tasks_per_node = self.num_tasks_per_node
        self.across_nodes(name for launch in self.planned for name, _ in launch.environment)
        # One file, in the order in which things were said.
        lines = [f"echo {shlex.quote(REDIRECTED)} >&2", "exec 2>&1"]
        for launch in self.planned:
            start = self.start_of(launch)
            lines.append("printf '%s\\n' " + shlex.quote(launch.traced(start)))
            for name, value in launch.environment:
                names = self.image.prevailing(name) if self.image else [name]
                lines += [f"export {each}={shlex.quote(value)}" for each in names]
            if launch is self.planned[-1]:
                break
            lines.append(shlex.join([*start, *launch.command]))
            lines += _ENDED
        self.prerun_cmds = [*self.prerun_cmds, *lines]
        last = self.planned[-1]
        wrapped = [*self.placing(last), *last.command]
        self.executable, *self.executable_opts = [shlex.quote(word) for word in wrapped]
        self.postrun_cmds = list(_ENDED)

    def names_for_image(self) -> list[str]:
        """Those of single launches too."""
        single = [name for launch in self.planned for name, _ in launch.environment]
        return [*super().names_for_image(), *single]

    def start_of(self, launch: BenchLaunch) -> list[str]:
        """Return what comes before the program: the launcher, and the scripts of each rank."""
        launcher = shlex.split(self.job.launcher.run_command(self.job))
        return [*launcher, *self.placing(launch)]

    def processes(self) -> int:
        """How many the launcher starts: a rank each, where ranks do not start others."""
        return self.planned[0].ranks

    def placing(self, launch: BenchLaunch) -> list[str]:
        """Return the scripts of a rank: to record, to bind, and to say where the rank is.

        The last is for programs that do not say it.
        """
        near = [NEAR_GPU, _DRIVERS[GPU_STACKS[self.environment.stack]]] if self.near_gpus else []
        return [BUSY, *near, *([PLACED] if launch.placed else [])]

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        parts, run = split(output), self.known_run()
        first = len(output) - sum(map(len, parts)) + 1
        file, error_file = (source_of(path) for path in self.printed)
        rest = [Source.from_text(file.name, "\n".join(output[: first - 1]))]
        logs = {path: source_of(path) for path in self.logs()}
        results: list[Result] = []
        self.judged = []
        versions = {"mpi": "", "ucx": "", "gpu_driver": ""}
        for index, (launch, part) in enumerate(zip(self.planned, parts, strict=False), 1):
            mine = [logs.pop(path) for path in [*logs] if path.match(launch.logs)]
            last = index == min(len(parts), len(self.planned))
            if last and errors:  # what follows the redirection of the script is of the last launch
                mine.append(error_file)
            shown = show_launch(file.name, part, mine, first=first)
            first += len(part)
            if last:
                shown = replace(shown, text=(*shown.text, *errors))
                if REDIRECTED in errors:
                    line = errors.index(REDIRECTED) + 1
                    shown.facts.redirected = Evidence(error_file.name, line, REDIRECTED)
            judged = judge(self.name, run, launch, shown)
            self.judged = [*self.judged, judged]
            results += judged.results
            versions |= versions_in(launch, shown)
        if missing := self.planned[len(parts) :]:
            left = f"{len(missing)} of {len(self.planned)} launches"
            failed = f"{missing[0].command[0]} was not started: {left} are missing"
            pair = pair_of(missing[0])
            results.append(Result(self.name, Verdict.FAILED, pair=pair, message=failed))
        rest += [Source.from_text(file.name, "\n".join(output[first - 1 :]), first)]
        rest += [*logs.values(), *([] if self.judged else [error_file])]
        worked = all(result.verdict is not Verdict.FAILED for result in results)
        measured = any(result.value is not None for result in results)
        # What a run lacks that did not measure anything says nothing more.
        more = self.problems(results) if measured or worked else ()
        return Judgement([*results, *more], versions, self.judged, rest)

    def problems(self, results: list[Result]) -> Iterable[Result]:
        """What else is wrong with the launches, of which ``results`` is known."""
        return ()


class BenchCheck(LaunchesCheck, special=True):
    """Runs a benchmark with a set of sizes."""

    time_limit = "10m"
    #: Which sizes: ``quick`` (tags gate and nightly) or ``full``.
    size_set = parameter(["quick", "full"])

    @run_after("init")
    def set_tags(self) -> None:
        self.tags |= TAGS[self.size_set]


class Pair(BenchCheck, special=True):
    """A server and a client, which ``pair.sh`` starts; on one node it does both."""

    @run_after("setup")
    def keep_them_off_one_core(self) -> None:
        self.leave_all_cores()


def versions_in(launch: BenchLaunch, shown: LaunchOutput) -> dict[str, str]:
    """What a launch says really ran."""
    mismatch = shown.facts.first("ucx.api-mismatch")
    loaded = mismatch["loaded"] if mismatch else ""
    ucx = next(shown.facts.values("ucx.version", "version"), loaded)
    named = {"ucx": ucx, launch.bench: shown.facts.version}
    return versions_of(shown) | {name: version for name, version in named.items() if version}


def versions_of(shown: LaunchOutput) -> dict[str, str]:
    """What a program of ours says really ran; nothing of another, or if it did not start."""
    for start, _ in shown.facts.events_of(Start):
        return {"mpi": start.mpi, "ucx": start.ucx, "gpu_driver": start.gpu_driver}
    return {}


def words_of(text: str, variable_name: str) -> list[str]:
    """Split what a user sets with ``-S`` into words; quotes keep blanks, nothing is expanded."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ReframeError(f"{variable_name}: {error} in {text!r}") from error
