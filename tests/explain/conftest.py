# SPDX-License-Identifier: MIT
"""What is expected of a run is found out once for all tests of a process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="package")
def many_runs() -> None:
    """Keep the expectations of every run, not only of the last few."""
    pytest.MonkeyPatch().setattr("busbar.engine.expectation._MOST_RUNS", 10_000)
