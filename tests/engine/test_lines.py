# SPDX-License-Identifier: MIT
"""A line that shows the end of a rank or a broken GPU fails a run, whatever its exit status.

The lines were written by hand: ``fatal_lines.txt`` by the kinds of what ends a run,
``healthy_lines.txt`` with the same words where nothing is wrong.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from busbar.check.causes import explained, read_rest
from busbar.engine.results import Outcome, Result
from busbar.explain import Source
from busbar.verdict import Verdict
from tests.cases import some

from ..reframe.altered import brief
from ..reframe.conftest import bands_found_once  # noqa: F401 - a fixture
from ..reframe.faults import GIB, kept, of_both
from ..reframe.kinds import KINDS

HERE = Path(__file__).parent
XCCL = KINDS["xccl"]
KIND = replace(
    XCCL,
    launch=replace(XCCL.launch, sizes=(GIB,), command=("all_reduce_perf", "-b", "1G", "-e", "1G")),
    text=re.sub(rf"(?m)^ +(?!{GIB})\d+ +\d+ +float.*\n", "", brief(XCCL.text))
    .replace("minBytes 1048576", f"minBytes {GIB}")
    .replace("bandwidth    : 249.523", "bandwidth    : 354.055"),
)
"""A healthy record with one size, so that each line costs two readings."""


def lines_of(name: str) -> list[str]:
    return (HERE / name).read_text().splitlines()[1:]


def amid(line: str) -> str:
    """The output with a line in its midst: what follows says that all is well."""
    before, end, after = KIND.text.partition("# Out of bounds")
    return f"{before}{line}\n{end}{after}"


def fails(line: str) -> bool:
    """Whether both judges fail the run, with a cause and words."""
    outcome, found = of_both(KIND, amid(line))
    # A run survives a full /dev/shm; the check fails it for the host that the line names.
    alone = found.verdict is Verdict.FAILED or "/dev/shm" in line
    return (
        alone
        and bool(outcome.causes)
        and bool(found.causes or found.verdict is Verdict.PASS)
        and any(row.message and row.verdict is Verdict.FAILED for row in outcome.results)
        and outcome.sentence().startswith("failed: ")
    )


def test_there_are_enough_of_them() -> None:
    assert len(set(lines_of("fatal_lines.txt"))) > 440
    assert len(set(lines_of("healthy_lines.txt"))) > 180


def test_both_judges_fail_the_run() -> None:
    assert [line for line in some(lines_of("fatal_lines.txt"), 4) if not fails(line)] == []


def test_words_of_errors_are_no_errors() -> None:
    outcomes = {line: kept(KIND, amid(line)) for line in ["", *lines_of("healthy_lines.txt")]}
    accused = {line: o.sentence() for line, o in outcomes.items() if o.verdict.is_problem}
    assert accused == {}
    assert outcomes[""].verdict is Verdict.PASS
    assert not outcomes[""].causes


def test_words_that_name_no_cause() -> None:
    """Nothing but a benchmark prints after its results in a check, until its launch has ended."""
    line, status = "node gpu12 vanished from the fabric", "exit_status=0"
    after = kept(KIND, f"{KIND.text}\n{line}")
    assert after.verdict is Verdict.PASS
    assert "after-results" in [note.id for note in after.notes]
    outcome = kept(KIND, KIND.text.replace(status, f"{line}\n{status}"))
    assert outcome.verdict is Verdict.UNKNOWN
    assert [(each.id, each.confidence) for each in outcome.causes] == [("rank-died", "likely")]
    assert "gpu12 vanished" in outcome.sentence()


def test_the_outcome_that_is_kept_is_the_one_that_is_shown(tmp_path: Path) -> None:
    outcome = kept(KIND, f"{KIND.text}\n{lines_of('fatal_lines.txt')[0]}")
    outcome.write(tmp_path / "results.json")
    assert Outcome.read(tmp_path / "results.json") == outcome


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.UNJUDGED, Verdict.DEGRADED])
def test_a_finding_makes_any_outcome_worse(verdict: Verdict) -> None:
    outcome = explained(
        Outcome("x", "ucx-1.14", (Result("x", verdict, gb_per_s=1.0),)),
        (),
        read_rest([Source.from_text("job", "MPI_ABORT was invoked on rank 2\nexit_status=0\n")]),
        KIND.run,
    )
    assert outcome.verdict is Verdict.FAILED
    assert [cause.id for cause in outcome.causes] == ["rank-died"]
