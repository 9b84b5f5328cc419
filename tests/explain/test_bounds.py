# SPDX-License-Identifier: MIT
"""What a file repeats too often is counted in a note, and never turns into a pass."""

from __future__ import annotations

import pytest

from busbar.engine.runs import Shapes
from busbar.explain import Source, explain
from busbar.verdict import Verdict

from .outputs import BANNER, load, nccl_table, run

GOOD = nccl_table({1 << 28: 337.0, 1 << 30: 356.0})
SITE = "h200x4"
MOST = 8
"""Of each kind, instead of thousands."""
SHAPES = ("_FREE_LINES", "_MOST_ALIKE", "_MIN_WORN")
BROKEN = '{"event": "reading", "metric": }\n'


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("busbar.engine.job_output.MOST_VALUES", MOST)
    monkeypatch.setattr("busbar.engine.tables.MOST_VALUES", MOST)
    monkeypatch.setattr("busbar.engine.runs.MOST_RUNS", MOST)


@pytest.mark.parametrize(
    ("repeat", "what"),
    [
        ("export VAR_{}=1\n", "variables"),
        ("export VAR=value{}\n", "variables"),
        ("mpirun -np 4 ./all_reduce_perf -b 8 -e {}\n", "commands"),
    ],
)
def test_what_is_not_kept_is_counted(repeat: str, what: str) -> None:
    good = run(GOOD, site=SITE)
    assert good.verdict is Verdict.PASS
    repeated = "".join(repeat.format(i) for i in range(MOST + 3))
    found = run(repeated + GOOD, site=SITE)
    texts = {each.id: each.summary for each in found.notes}
    assert f"3 {what}" in texts["repeats-dropped"]
    assert found.verdict is Verdict.UNJUDGED


def test_a_bound_that_is_not_reached_changes_nothing() -> None:
    exports = "".join(f"export VAR_{i}=1\n" for i in range(MOST - 3))
    found = run(exports + GOOD, site=SITE)
    assert found.verdict is Verdict.PASS
    assert "repeats-dropped" not in {each.id for each in found.notes}


def test_starts_without_a_row_are_counted() -> None:
    found = run(BANNER * (MOST + 3))
    assert "3 starts of the program" in " ".join(each.summary for each in found.notes)
    assert found.verdict is Verdict.FAILED


def test_broken_events_are_counted() -> None:
    start = '{"event": "start", "program": "gpu_aware", "version": "1.0", "backend": "cuda",'
    start += ' "ranks": 2, "asked_ranks": 2}\n'
    found = run(start + BROKEN * (MOST + 3))
    assert "3 broken events" in " ".join(each.summary for each in found.notes)
    assert found.verdict is Verdict.FAILED


def test_runs_after_the_last_that_is_read_are_unknown() -> None:
    bad = GOOD.replace("356.00", "12.00")
    sources = [Source.from_text("job.out", GOOD * MOST + bad)]
    found = explain(sources, site=load(SITE))
    assert len(found) == MOST
    assert found[0].verdict is Verdict.PASS
    assert [each.summary for each in found[-1].notes if each.id == "runs-dropped"]
    assert found[-1].verdict is Verdict.UNJUDGED


def test_as_many_runs_as_are_read_pass() -> None:
    found = explain([Source.from_text("job.out", GOOD * 3)], site=load(SITE))
    assert [each.verdict for each in found] == [Verdict.PASS] * 3


def test_a_fault_among_skipped_lines_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that only repeat are skipped; one that differs in a code is not."""
    for name in SHAPES:
        monkeypatch.setattr(f"busbar.engine.runs.{name}", MOST)
    worn = "".join(
        f"srun: error: host{i}: task {i}: Exited with exit code 1\n" for i in range(600)
    )
    fault = "srun: error: n1: task 0: Out Of Memory\n"
    codes = "".join(f"OSError: [Errno 28] No space left on device: '/x/{i}'\n" for i in range(500))
    found = run(worn + fault + codes)
    assert {"out-of-memory", "cannot-write"} <= {cause.id for cause in found.causes}
    (line,) = {e.line for c in found.causes for e in c.evidence if "Out Of Memory" in e.text}
    assert line == 601


ALONE = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) iters: 20\n"
    "#  Rank  0 Group  0 Pid   {} on node0 device  0 [0x0f] NVIDIA H200\n"
    "#\n"
    "       8             2     float     sum      -1    12.3    0.00    0.00      0\n"
    "# Out of bounds values : {}\n"
)


def test_what_repeats_after_the_bound_is_skipped_and_a_fault_in_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in SHAPES:
        monkeypatch.setattr(f"busbar.engine.runs.{name}", MOST)
    repeated = "".join(ALONE.format(10_000 + i, "0 OK") for i in range(500))
    found = run(repeated)
    assert "at least" in " ".join(each.summary for each in found.notes)
    assert [cause.id for cause in found.causes] == ["singletons"]
    bad = run(repeated + ALONE.format(77_777, "5 FAILED") + repeated)
    assert "nccl-wrong-data" in {cause.id for cause in bad.causes}


@pytest.mark.parametrize("code", ["0x81", "129"])
def test_a_code_in_worn_lines_counts(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address does not."""
    shapes = Shapes()
    monkeypatch.setattr("busbar.engine.runs._FREE_LINES", 0)
    line = b"node%d NCCL WARN QP 0x%x failed with syndrome %s"
    for i in range(100):
        assert shapes.is_worn(line % (7, 0xABCDE + i, b"0x3")) is (i >= 64)
        shapes.count()
    assert not shapes.is_worn(line % (7, 0xABCDE, code.encode()))
