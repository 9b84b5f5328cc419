# SPDX-License-Identifier: MIT
"""What all checks share: they state what they ask, Busbar judges the answer, ReFrame shows it."""

from __future__ import annotations

from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import fixture, run_before, sanity_function, variable
from reframe.core.exceptions import PerformanceError

from busbar import site as sites
from busbar.check.causes import explained
from busbar.check.judge import Asked, judge
from busbar.check.measured import expectation as measured_expectation
from busbar.check.results import RESULTS_FILE, Outcome, Result
from busbar.expect import point_to_point
from busbar.parse.gpu_aware import GpuAwareRun, Reading, parse
from busbar.units import parse_bytes
from busbar.verdict import Expectation, Verdict

_BENCH = {"bandwidth": "osu_bw", "latency": "osu_latency"}


class BuildGpuAware(rfm.CompileOnlyRegressionTest):
    """Compiles the program once for each environment, for the back end of its stack."""

    sourcesdir = str(Path(__file__).with_name("src"))
    sourcepath = "gpu_aware.cpp"
    build_system = "SingleSource"
    build_locally = True

    @run_before("compile")
    def set_flags(self) -> None:
        extras = self.current_environ.extras
        self.executable = "gpu_aware"
        self.build_system.cxxflags = ["-O3", "-std=c++17", *extras["cxxflags"]]
        self.build_system.ldflags = extras["ldflags"]

    @sanity_function
    def built(self) -> object:
        program = Path(self.stagedir, "gpu_aware")
        return sn.assert_true(program.exists(), msg=f"the compiler left no {program}")


class GpuAwareCheck(rfm.RunOnlyRegressionTest, special=True):
    """Runs ``gpu_aware`` with a rank for each GPU (or core) of a node and judges every line.

    Sanity says that the run did what was asked, performance that each reading lies between band
    and limit; both come from one judgement, which is left in ``results.json``.
    """

    program = fixture(BuildGpuAware, scope="environment")
    valid_systems = ["*"]
    valid_prog_environs = ["+host", "+cuda", "+rocm"]
    require_reference = True
    time_limit = "2m"
    keep_files = [RESULTS_FILE]

    #: Sizes of the bandwidth readings, as in ``64K,1M``.
    sizes = variable(str, value="")
    #: Sizes of the latency readings.
    latency_sizes = variable(str, value="")
    #: Sizes of the correctness tests.
    check_sizes = variable(str, value="")
    #: Collectives whose results are checked.
    collectives = variable(str, value="")
    #: More options of the program; the tests inject faults with it.
    more_options = variable(str, value="")
    #: A command before the program, as in ``numactl --cpunodebind=0``.
    wrapper = variable(str, value="")

    @property
    def on_gpu(self) -> bool:
        """Whether the environment's stack moves GPU memory."""
        return self.current_environ.extras["stack"] != "host"

    def buffers(self) -> tuple[str, ...]:
        """Kinds of memory of sender and receiver; concrete checks choose."""
        return ("DD",) if self.on_gpu else ("HH",)

    @run_before("run")
    def set_command(self) -> None:
        extras = self.current_partition.extras
        self.num_tasks = extras["ranks_per_node"]
        self.num_tasks_per_node = extras["ranks_per_node"]
        program = str(Path(self.program.stagedir, "gpu_aware"))
        self.executable, *before = [*self.wrapper.split(), program]
        options = {
            "ranks": str(self.num_tasks),
            "buffers": ",".join(self.buffers()),
            "sizes": self.sizes,
            "latency-sizes": self.latency_sizes,
            "check": self.check_sizes,
            "collectives": self.collectives,
            "devices": ",".join(extras["bus_ids"]) if self.on_gpu else "",
        }
        self.executable_opts = [
            *before,
            *(f"--{name}={value}" for name, value in options.items() if value),
            *self.more_options.split(),
        ]

    def asked(self) -> Asked:
        """The question, as the judgement reads it."""

        def bytes_of(sizes: str) -> tuple[int, ...]:
            return tuple(parse_bytes(size) for size in sizes.split(",") if size)

        extras = self.current_environ.extras
        return Asked(
            check=self.name,
            ranks=self.num_tasks,
            buffers=tuple(" ".join(pair) for pair in self.buffers()),
            sizes=bytes_of(self.sizes),
            latency_sizes=bytes_of(self.latency_sizes),
            check_sizes=bytes_of(self.check_sizes),
            collectives=tuple(name for name in self.collectives.split(",") if name),
            lane=extras["lane"],
            transports=tuple(extras["transports"]),
        )

    def expect(self, run: GpuAwareRun, reading: Reading) -> Expectation:
        """What the site's links allow; a copy of the same run where they are unknown."""
        site = sites.load(self.current_partition.extras["site"])
        if not self.on_gpu:
            return measured_expectation(run, reading)
        gpu_of = {rank.rank: self.gpu_index(rank.device, rank.node_rank) for rank in run.ranks}
        return point_to_point(
            site,
            bench=_BENCH[reading.metric],
            src=gpu_of[reading.source],
            dst=gpu_of[reading.target],
            nbytes=reading.nbytes,
            buffers=reading.buffers,
            lane=self.current_environ.extras["lane"],
            partition=self.current_partition.name,
        )

    def gpu_index(self, bus_id: str, node_rank: int) -> int:
        """The GPU's place in the topology; without known bus ids, ranks stand in GPU order."""
        known = self.current_partition.extras["bus_ids"]
        return known.index(bus_id) if bus_id in known else node_rank

    @run_before("sanity")
    def judge_output(self) -> None:
        """Judges once; the sanity and performance functions only repeat it in ReFrame's terms."""
        output = Path(self.stagedir, self.stdout.evaluate())
        errors = Path(self.stagedir, self.stderr.evaluate())
        log = [*_lines(output), *_lines(errors)]
        run = parse(_lines(output))
        results = judge(self.asked(), run, log, lambda reading: self.expect(run, reading))
        if self.job.exitcode and all(result.verdict is Verdict.PASS for result in results):
            message = f"the job ended with exit status {self.job.exitcode}"
            results.append(Result(self.name, Verdict.FAILED, message=message))
        extras = self.current_environ.extras
        start = run.starts[0] if run.starts else None
        self.outcome = explained(
            Outcome(
                check=self.name,
                partition=self.current_partition.name,
                environment=self.current_environ.name,
                delivery=extras["delivery"],
                lane=extras["lane"],
                results=tuple(results),
                versions={
                    "mpi": start.mpi if start else "",
                    "ucx": start.ucx if start else "",
                    "gpu_driver": str(start.gpu_driver or "") if start else "",
                },
            ),
            [output, errors],
            sites.load(self.current_partition.extras["site"]),
        )
        self.outcome.write(Path(self.stagedir, RESULTS_FILE))
        for result in self.outcome.results:
            if result.value is not None and result.typical:
                self.add_metric(result)

    def add_metric(self, result) -> None:
        """Hands one reading and its bounds to ReFrame, for its own verdict and its logs."""
        ends = result.pair.replace("->", "_to_")
        name = f"{result.metric}_{ends}_{result.buffers.replace(' ', '')}_{result.bytes}"
        unit = "us" if result.metric == "latency" else "GB/s"
        self.perf_variables[name] = sn.make_performance_function(sn.defer(result.value), unit)
        worst, best = (result.high, result.limit) if unit == "us" else (result.low, result.limit)
        lower, upper = sorted((worst, best))
        self.reference[f"{self.current_partition.fullname}:{name}"] = (
            result.typical,
            lower / result.typical - 1,
            upper / result.typical - 1,
            unit,
        )

    @sanity_function
    def did_what_was_asked(self) -> object:
        """All but the bands: ranks, placement, data, transport, no reading missing."""
        wrong = [
            r for r in self.outcome.results if r.verdict is not Verdict.PASS and not r.typical
        ]
        return sn.assert_true(
            not wrong, msg=self.outcome.sentence() if wrong else "no result is wrong"
        )

    def check_performance(self) -> None:
        """ReFrame's own check, with the verdict and the cause in its message."""
        try:
            super().check_performance()
        except PerformanceError as error:
            raise PerformanceError(self.outcome.sentence()) from error


def _lines(path: Path) -> list[str]:
    """Lines of a job's output; bytes that are no text are shown as such, and lose nothing else."""
    return path.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
