# SPDX-License-Identifier: MIT
"""What a run tells before and while it runs."""

from __future__ import annotations

import io

import pytest

from busbar.check.listing import Match
from busbar.check.run import Step, job_count, step_of
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


def test_each_place_of_a_check_is_a_job() -> None:
    assert job_count([match(1, *PLACES), match(2, "gpu+spack"), match(3)], None) == 3


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
