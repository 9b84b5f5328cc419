# SPDX-License-Identifier: MIT
"""What all checks share: they state what they ask, Busbar judges the answer, ReFrame shows it."""

from __future__ import annotations

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_after, run_before, variable
from reframe.core.exceptions import PerformanceError

from busbar.engine.results import RESULTS_FILE, Result

from .images import ImageMixin
from .judging import JudgingMixin
from .launching import LaunchingMixin


class ReportingMixin(JudgingMixin):
    """Hands judged readings to ReFrame, for its own verdict and its logs."""

    @run_before("performance")
    def set_perf_variables(self) -> None:
        """Report every reading, for ReFrame's logs; those with a band also for its verdict."""
        if self.is_dry_run():
            return
        for result in self.outcome.results:
            if result.value is not None and result.metric != "correctness":
                self.add_metric(result)

    def add_metric(self, result: Result) -> None:
        """Report one reading with its bounds, if it has any."""
        assert result.value is not None
        ends = result.pair.replace("->", "_to_").replace(" ", "_")
        name = f"{result.metric}_{ends}_{result.buffers.replace(' ', '')}_{result.bytes}"
        if repeated := sum(each.startswith(name) for each in self.perf_variables):
            name += f"_again_{repeated}"  # a tool may measure one size several times
        unit = "us" if result.metric == "latency" else "GB/s"
        self.perf_variables[name] = sn.make_performance_function(sn.defer(result.value), unit)
        if not result.typical:  # the outcome says that it is not judged
            self.reference[f"{self.current_partition.fullname}:{name}"] = (0, None, None, unit)
            return
        # A calibrated band may have no limit: a copy within host memory uses no link.
        lower, upper = (result.limit, result.high) if unit == "us" else (result.low, result.limit)
        self.reference[f"{self.current_partition.fullname}:{name}"] = (
            result.typical,
            None if lower is None else lower / result.typical - 1,
            None if upper is None else upper / result.typical - 1,
            unit,
        )

    def check_performance(self) -> None:
        """Check as ReFrame does, with the verdict and the cause in its message."""
        try:
            super().check_performance()
        except PerformanceError as error:
            raise PerformanceError(self.outcome.sentence()) from error


class BusbarCheck(
    ReportingMixin, ImageMixin, LaunchingMixin, rfm.RunOnlyRegressionTest, special=True
):
    """Runs something, judges what it printed, and leaves the judgement in ``results.json``.

    Sanity says that the run did what was asked, performance that each reading lies between band
    and limit. A check says what it asks (``valid_prog_environs`` in features, never a system) and
    gives :meth:`judgement`. Hooks of the mixins run from the last to the first: the launcher has
    its options before the image wraps it.
    """

    valid_systems = ["*"]
    valid_prog_environs = ["+host", "+cuda", "+rocm"]
    require_reference = True
    time_limit = "2m"
    keep_files = [RESULTS_FILE]

    #: More output of the tools, as file patterns in the stage directory.
    log_files = variable(str, value="")
    #: What the check asks for, kept for lists: ReFrame drops it from those that it prints whole.
    asked_systems = variable(typ.List[str], value=[], loggable=True)
    asked_environs = variable(typ.List[str], value=[], loggable=True)
    #: Readings and provenance, which ReFrame stores with the other variables (busbar history).
    busbar = variable(dict, value={}, loggable=True)
    #: The SHA-256 of the outcome that it left; `busbar check` believes no other.
    outcome_digest = variable(str, value="", loggable=True)

    @run_after("init", always_last=True)
    def set_asked_features(self) -> None:
        self.asked_systems = list(self.valid_systems)
        self.asked_environs = list(self.valid_prog_environs)

    @property
    def on_gpu(self) -> bool:
        """Whether the environment's stack moves GPU memory."""
        return self.environment.stack != "host"
