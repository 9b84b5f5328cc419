# SPDX-License-Identifier: MIT
"""Lines of launchers, schedulers, libraries and kernels, in a healthy output with status 0.

Those in ``fatal_lines.txt`` say that something ended or broke; those in ``healthy_lines.txt``
have the same words and say nothing of the kind. Both were written from documentation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar.check.causes import explained
from busbar.engine.collect import show
from busbar.engine.judge import judge
from busbar.engine.results import Outcome
from busbar.explain import Source

from ..reframe.altered import HEALTHY, brief
from ..reframe.faults import Kind

HERE = Path(__file__).parent
KIND = HEALTHY["all_reduce"]


def lines_of(name: str) -> list[str]:
    return (HERE / name).read_text().splitlines()[1:]


def checked(line: str) -> Outcome:
    """What a check keeps of the output with a line in its midst."""
    assert isinstance(KIND, Kind)
    text = brief(KIND.text).replace("# Out of bounds", f"{line}\n# Out of bounds", 1)
    results = tuple(judge("xccl", KIND.run, KIND.launch, show("job", text.splitlines())))
    return explained(
        Outcome("xccl", "ucx-1.14", results), [Source.from_text("job", text)], KIND.run
    )


def test_there_are_enough_of_them() -> None:
    assert len(set(lines_of("fatal_lines.txt"))) > 240
    assert len(set(lines_of("healthy_lines.txt"))) > 100


@pytest.mark.parametrize("line", lines_of("fatal_lines.txt"))
def test_a_fatal_line_does_not_pass(line: str) -> None:
    assert checked(line).verdict.is_problem


@pytest.mark.parametrize("line", lines_of("healthy_lines.txt"))
def test_a_healthy_line_accuses_nothing(line: str) -> None:
    outcome = checked(line)
    assert not outcome.verdict.is_problem, outcome.sentence()
