# SPDX-License-Identifier: MIT
"""What all checks share: they state what they ask, Busbar judges the answer, ReFrame shows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_after, run_before, sanity_function, variable
from reframe.core.exceptions import PerformanceError

from busbar import site as sites
from busbar.check.causes import explained
from busbar.check.results import RESULTS_FILE, Outcome, Result
from busbar.verdict import Verdict

SOURCES = Path(__file__).with_name("src")


class Judgement(NamedTuple):
    """What a check makes of its job's output."""

    results: list[Result]
    versions: dict[str, str]


class BusbarCheck(rfm.RunOnlyRegressionTest, special=True):
    """Runs something, judges what it printed, and leaves the judgement in ``results.json``.

    Sanity says that the run did what was asked, performance that each reading lies between band
    and limit. A check says what it asks (``valid_prog_environs`` in features, never a system) and
    gives :meth:`judgement`.
    """

    valid_systems = ["*"]
    valid_prog_environs = ["+host", "+cuda", "+rocm"]
    require_reference = True
    time_limit = "2m"
    keep_files = [RESULTS_FILE]

    #: Files with more of what the tools said, as patterns in the stage directory.
    log_files = variable(str, value="")

    #: What the check asks for, kept for lists: ReFrame drops it from those that it prints whole.
    asked_systems = variable(typ.List[str], value=[], loggable=True)
    asked_environs = variable(typ.List[str], value=[], loggable=True)

    @run_after("init", always_last=True)
    def keep_what_is_asked(self) -> None:
        self.asked_systems = list(self.valid_systems)
        self.asked_environs = list(self.valid_prog_environs)

    @property
    def on_gpu(self) -> bool:
        """Whether the environment's stack moves GPU memory."""
        return self.current_environ.extras["stack"] != "host"

    @property
    def site(self) -> sites.Site:
        """The site that the check runs on."""
        return sites.load(self.current_partition.extras["site"])

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        """Results of the run from the lines of standard output and standard error."""
        raise NotImplementedError

    def logs(self) -> Sequence[Path]:
        """The log files that the run left."""
        return sorted(Path(self.stagedir).glob(self.log_files)) if self.log_files else []

    @run_before("sanity")
    def judge_output(self) -> None:
        """Judges once; the sanity and performance functions only repeat it in ReFrame's terms."""
        if self.is_dry_run():
            return
        output = Path(self.stagedir, self.stdout.evaluate())
        errors = Path(self.stagedir, self.stderr.evaluate())
        results, versions = self.judgement(_lines(output), _lines(errors))
        if self.job.exitcode and all(result.verdict is Verdict.PASS for result in results):
            message = f"the job ended with exit status {self.job.exitcode}"
            results.append(Result(self.name, Verdict.FAILED, message=message))
        extras = self.current_environ.extras
        self.outcome = explained(
            Outcome(
                check=self.name,
                partition=self.current_partition.name,
                environment=self.current_environ.name,
                delivery=extras["delivery"],
                lane=extras["lane"],
                results=tuple(results),
                versions=versions,
            ),
            [output, errors, *self.logs()],
            self.site,
        )
        self.outcome.write(Path(self.stagedir, RESULTS_FILE))
        for result in self.outcome.results:
            if result.value is not None and result.typical:
                self.add_metric(result)

    def add_metric(self, result: Result) -> None:
        """Hands one reading and its bounds to ReFrame, for its own verdict and its logs."""
        ends = result.pair.replace("->", "_to_").replace(" ", "_")
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


class BuildProgram(rfm.CompileOnlyRegressionTest, special=True):
    """Compiles one of our programs for each environment, for the back end of its stack."""

    sourcesdir = str(SOURCES)
    build_system = "SingleSource"
    build_locally = True

    @run_before("compile")
    def set_flags(self) -> None:
        extras = self.current_environ.extras
        self.executable = Path(self.sourcepath).stem
        self.build_system.cxxflags = ["-O3", "-std=c++17", "-pthread", *extras["cxxflags"]]
        self.build_system.ldflags = extras["ldflags"]

    @sanity_function
    def built(self) -> object:
        program = Path(self.stagedir, self.executable)
        return sn.assert_true(program.exists(), msg=f"the compiler left no {program}")


def _lines(path: Path) -> list[str]:
    """Lines of a job's output; bytes that are no text are shown as such, and lose nothing else."""
    return path.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
