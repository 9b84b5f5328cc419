# SPDX-License-Identifier: MIT
"""Lines of launchers, schedulers, libraries and kernels, in a healthy output with status 0.

Those in ``fatal_lines.txt`` say that something ended or broke; those in ``healthy_lines.txt``
have the same words and say nothing of the kind. Both were written from documentation.
"""

from __future__ import annotations

from pathlib import Path

from busbar.engine.results import Outcome

from ..reframe.altered import HEALTHY, brief
from ..reframe.faults import Kind, kept

HERE = Path(__file__).parent
KIND = HEALTHY["all_reduce"]


def lines_of(name: str) -> list[str]:
    return (HERE / name).read_text().splitlines()[1:]


def checked(line: str) -> Outcome:
    """What a check keeps of the output with a line in its midst."""
    assert isinstance(KIND, Kind)
    text = brief(KIND.text).replace("# Out of bounds", f"{line}\n# Out of bounds", 1)
    return kept(KIND, text)


def test_there_are_enough_of_them() -> None:
    assert len(set(lines_of("fatal_lines.txt"))) > 240
    assert len(set(lines_of("healthy_lines.txt"))) > 100


def test_fatal_lines_do_not_pass() -> None:
    lines = lines_of("fatal_lines.txt")
    assert [line for line in lines if not checked(line).verdict.is_problem] == []


def test_healthy_lines_accuse_nothing() -> None:
    outcomes = {line: checked(line) for line in lines_of("healthy_lines.txt")}
    assert {line: o.sentence() for line, o in outcomes.items() if o.verdict.is_problem} == {}
