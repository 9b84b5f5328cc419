# SPDX-License-Identifier: MIT
"""A fatal message after the last result of a passing benchmark decides the end of a run."""

from __future__ import annotations

import re
from pathlib import Path

from busbar.errors import BusbarError
from busbar.explain import Source, explain
from busbar.explain.page import examples
from busbar.parse import severe
from busbar.parse.tables import beside
from busbar.verdict import Verdict
from tests.cases import cases, some
from tests.files import read_table

from .outputs import BANNER, HOST_BANNER, ids, run, verdict
from .test_codes import faults
from .test_labels import DATA

GOOD = BANNER + "268435456  358000.00\n"
RECORDED = (
    "h200x4/nccl_no_debug.log",
    "h200x4/gpu_aware_healthy.log",
    "h200x4/nccl_healthy_a.log",
)
MAY_PASS = {"link-down", "hcoll-unusable", "rccl-host-setting", "nccl-version-mismatch"}
"""Causes that explain a bad run, and end none."""
NOTICES = ("reset by remote peer", "): 154,", "): 45,", "Hello world from", '  File "')
"""What a run that measured survives: a peer that goes first, Xids that follow, another program.
A frame without its exception names no end."""
AFTER = read_table(Path(__file__).with_name("after_a_pass.yaml"))
AFTER["unclear"] += [
    each
    for row in beside(severe.__file__)["forms"].values()
    if "unclear" in row
    for each in row["examples"]
]


def passes(text: str) -> bool:
    return verdict(text, site="h200x4") is Verdict.PASS


def fails_alone(text: str) -> bool:
    try:
        return any(
            each.verdict is Verdict.FAILED for each in explain([Source.from_text("x", text)])
        )
    except BusbarError:
        return False


def test_a_fatal_message_after_a_pass_is_no_pass() -> None:
    assert passes(GOOD)
    lines = [(cause, line + "\n") for _, cause, line in faults()]
    lines += [
        (cause, each.text)
        for cause, rows in examples().items()
        for each in rows
        if not (
            each.site or each.verdict or each.text.startswith("{") or "\n#" in f"\n{each.text}"
        )
    ]
    fatal = [
        text
        for cause, text in lines
        if cause not in MAY_PASS and not any(each in text for each in NOTICES)
    ]
    assert len(fatal) > 800
    tried = some(fatal, 3)
    passing = [text for text in tried if passes(GOOD + text)]
    assert [text for text in passing if fails_alone(text)] == []
    assert len(passing) < len(tried) / 16


def test_recorded_runs_that_end_badly() -> None:
    fault = "gpu1:1:2 [0] NCCL WARN Mismatched collective detected, please check your collective\n"
    for name in RECORDED:
        text = (DATA / name).read_text().split("\n", 1)[1]
        for end in (fault, "torch.OutOfMemoryError: CUDA out of memory.\n", "exit_status=7\n"):
            assert verdict(text) is Verdict.PASS
            assert verdict(text + end) is Verdict.FAILED, (name, end)


def test_what_follows_a_pass() -> None:
    wanted = {"fatal": Verdict.FAILED, "unclear": Verdict.UNJUDGED, "harmless": Verdict.PASS}
    wrong = [
        (line, found)
        for kind, expected in wanted.items()
        for line in AFTER[kind]
        for end in ("", "step 2: loss 1.9\n")
        if (found := verdict(f"{GOOD}{line}\n{end}", site="h200x4")) is not expected
    ]
    assert not wrong
    teardown = "".join(f"{line}\n" for line in AFTER["harmless"])
    for name in RECORDED:
        text = (DATA / name).read_text() + re.sub(r"\bn[13]:", "vm:", teardown)
        assert verdict(text) is Verdict.PASS, name


MESSAGE = "[1.0] [n1:5:0] select.c:657  UCX  ERROR   no active messages transport to <no\n"
ROWS = "268435456  358000.00\n"


def test_a_message_before_results_was_survived() -> None:
    """That of the same launch, which prints its banner after MPI_Init."""
    assert passes(f"$ mpirun -np 2 osu_bw D D\n{MESSAGE}{BANNER}{ROWS}")
    assert passes(f"{BANNER}134217728  358000.00\n{MESSAGE}{ROWS}")
    assert ids(run(f"{BANNER}{ROWS}{MESSAGE}")) == {"ucx-no-transport"}


def test_a_program_that_failed_before_the_benchmark() -> None:
    """It is told apart by the command lines; without them nobody knows whose message it is."""
    launch = f"$ mpirun -np 2 osu_bw D D\n{BANNER}{ROWS}"
    two = run(f"$ mpirun -np 2 osu_bibw D D\n{MESSAGE}{launch}", site="h200x4")
    assert (two.verdict, ids(two)) == (Verdict.FAILED, {"ucx-no-transport"})
    for text in (MESSAGE + launch, MESSAGE + BANNER + ROWS):
        open_ = run(text, site="h200x4")
        assert (open_.verdict, open_.causes) == (Verdict.UNJUDGED, ())
        (note,) = [each for each in open_.notes if each.id == "other-program"]
        assert "no active messages transport" in note.evidence[0].text


@cases(
    "name", ["CUDA error: out of memory", "/x/corrupted_payload_fails", "MPI_ABORT was invoked"]
)
def test_the_name_of_a_process_is_no_message(name: str) -> None:
    """The recorder of a check writes down what other users ran."""
    busy = f'{{"event": "busy", "host": "n1", "processes": [{{"pid": 7, "command": "{name}"}}]}}\n'
    found = run(f"$ mpirun -np 2 osu_bw D D\n{BANNER}{ROWS}{busy}", site="h200x4")
    assert not {"other-program", "rank-died"} & {each.id for each in (*found.notes, *found.causes)}


def test_the_order_of_two_files_is_not_known() -> None:
    assert run(HOST_BANNER + ROWS, MESSAGE).verdict is Verdict.UNJUDGED
