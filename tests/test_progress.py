# SPDX-License-Identifier: MIT
"""What a run tells before and while it runs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from busbar.check.listing import Match
from busbar.check.progress import Step, announced, earlier_seconds, job_count, step_of
from busbar.terminal import Terminal
from tests.cases import cases

PLACES = ("gpu+spack", "gpu+prefix")


def match(number: int, *places: str) -> Match:
    return Match(f"c{number}", "", (), (), places, hash=f"h{number}")


@cases(
    ("line", "step"),
    [
        (
            "[ RUN      ] xccl %size_set=quick %collective=all_reduce %ranks=0 /ab @p4d:gpu+spack",
            Step("xccl all_reduce"),
        ),
        ("[       OK ] (2/7) gpu_aware /0f17acc0 @local:host+w", Step("gpu_aware", ended=True)),
        ("[     FAIL ] (7/7) link_matrix /70 @local:host+w", Step("link_matrix", ended=True)),
        ("[     SKIP ] (7/7) link_matrix /70 @local:host+w", Step("link_matrix", ended=True)),
        (
            "[ RUN      ] BuildMemory ~local:host+wheels /09 @local:host+wheels",
            Step("BuildMemory", counts=False),
        ),
        ("P: bandwidth_0_to_1: 3 GB/s", None),
        ("[----------] all spawned checks have finished", None),
    ],
)
def test_a_line_of_reframe_is_a_step(line, step):
    assert step_of(line + "\n") == step


@cases(
    ("matches", "earlier", "text"),
    [
        ([match(1, *PLACES), match(2, "gpu+spack")], {}, "3 jobs"),
        ([match(1, *PLACES)], {("h1", "gpu+spack"): 34.0}, "2 jobs"),  # of one nothing is known
        (
            [match(1, *PLACES)],
            {("h1", "gpu+spack"): 34.0, ("h1", "gpu+prefix"): 4.4},
            "2 jobs, about 40 s",
        ),
        ([match(1, PLACES[0]), match(2)], {("h1", "gpu+spack"): 600.0}, "1 job, about 10 min"),
        ([match(1, PLACES[0])], {("h1", "gpu+spack"): 0.1}, "1 job, about 1 s"),
    ],
)
def test_the_jobs_and_their_time_are_announced(matches, earlier, text):
    assert announced(job_count(matches, None), matches, earlier) == text


def test_the_time_is_that_of_the_run_before(tmp_path):
    case = {"hashcode": "h1", "partition": "gpu", "environ": "spack", "time_total": 34.2}
    never = {**case, "hashcode": "h2", "time_total": None}
    report = tmp_path / "reframe.json"
    report.write_text(json.dumps({"runs": [{"testcases": [case, never]}]}))
    assert earlier_seconds(report) == {("h1", "gpu+spack"): 34.2}


@cases("text", ["", "{", "[]", '{"runs": []}', '{"runs": [{"testcases": [{}]}]}'])
def test_a_report_that_says_nothing_is_no_fault(tmp_path: Path, text):
    (tmp_path / "reframe.json").write_text(text)
    assert earlier_seconds(tmp_path / "reframe.json") == {}
    assert earlier_seconds(tmp_path / "missing.json") == {}


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Tty(), io.StringIO()])
def test_only_a_terminal_gets_a_bar(stream, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with Terminal(stream).progress(8) as bar:
        bar.show("xccl all_reduce\x1b[2J")
        bar.advance()
    shown = stream.getvalue()
    if stream.isatty():
        assert "xccl all_reduce\\x1b[2J" in shown
        assert "1/8" in shown
        assert "0:00:0" in shown
    else:
        assert shown == ""
