# SPDX-License-Identifier: MIT
"""The readings of a check as performance variables of ReFrame."""

from __future__ import annotations

import reframe.utility.sanity as sn
from reframe.core.builtins import run_before
from reframe.core.exceptions import PerformanceError

from busbar.engine.results import Result

from .judging import JudgingMixin


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
