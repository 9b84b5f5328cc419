# SPDX-License-Identifier: MIT
"""Outputs that lack a part of what was asked, and must not pass for whole."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from busbar.engine.assertions import ASSERTIONS
from busbar.engine.collect import show
from busbar.verdict import Verdict

from .kinds import KINDS
from .test_minimum import verdict


def problems(kind: str, assertion: str, text: str) -> list[str]:
    shown = show("record", text.splitlines())
    return [message for _, message in ASSERTIONS[assertion](KINDS[kind].launch, shown)]


def test_a_largest_size_that_the_tool_has_lowered(tmp_path: Path) -> None:
    small = re.sub(r"maxBytes \d+", "maxBytes 16777216", KINDS["xccl"].text)
    kept = [
        line
        for line in small.splitlines()
        if not ((size := re.match(r" +(\d+) +\d+ +float", line)) and int(size[1]) > 1 << 24)
    ]
    cut = "\n".join(kept)
    assert any("no reading at 64 MiB" in said for said in problems("xccl", "metrics", cut))
    assert verdict(KINDS["xccl"], cut, tmp_path) is Verdict.FAILED


def test_validation_of_some_sizes_only() -> None:
    text = KINDS["pt2pt_data"].text
    assert not problems("pt2pt_data", "data", text)
    assert problems("pt2pt_data", "data", text.replace("Pass", "", 1))


@pytest.mark.parametrize(("bench", "wrong"), [("all_reduce", True), ("alltoall", False)])
def test_results_that_were_not_checked_in_place(bench: str, wrong: bool) -> None:
    text = re.sub(r"(?m)^( +\d+ +\d+ +float.*) 0$", r"\1 N/A", KINDS["xccl"].text)
    launch = replace(KINDS["xccl"].launch, bench=bench)
    shown = show("record", text.splitlines())
    assert bool(list(ASSERTIONS["data"](launch, shown))) is wrong
