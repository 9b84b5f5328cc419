# SPDX-License-Identifier: MIT
"""What all checks share: they state what they ask, Busbar judges the answer, ReFrame shows it."""

from __future__ import annotations

import reframe as rfm
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_after, variable

from busbar.engine.results import RESULTS_FILE

from .images import ImageMixin
from .launching import LaunchingMixin
from .reporting import ReportingMixin


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
