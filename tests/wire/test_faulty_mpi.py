# SPDX-License-Identifier: MIT
"""No run with wrong data passes: a library that spoils messages is preloaded into every rank.

The tests here use host memory. `tests/gpu/wire_faults.sh` runs the same on GPU memory.
"""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from busbar.engine.collect import show
from busbar.engine.judge import judge
from busbar.engine.launch import NONCE, BenchLaunch
from busbar.engine.results import Result
from busbar.engine.run import Run
from busbar.explain import Source, explain
from busbar.verdict import Verdict, combined
from tests.cases import some
from tests.said import ran

from ..test_gpu_aware_program import environment

pytestmark = pytest.mark.run

BIN = Path(sys.executable).parent
FAULTS = ("flip", "half", "drop", "repeat", "swap", "truncate", "past", "ahead", "early")
RESULTS = ("flip", "past", "ahead", "half", "drop", "repeat", "blocks", "late")
ROOTED, SUMS = (*RESULTS, "root"), (*RESULTS, "type", "op", "source", "narrow")
FAULTS_IN = {
    "bcast": ROOTED,
    "gather": (*ROOTED, "source"),
    "scatter": ROOTED,
    "reduce": (*ROOTED, "type", "op", "source", "narrow"),
    "allreduce": SUMS,
    "reduce_scatter_block": SUMS,
    "allgather": (*RESULTS, "source"),
    "allgatherv": RESULTS,
    "alltoall": (*RESULTS, "source"),
    "alltoallv": RESULTS,
    "put": ("flip", "drop", "unseen"),
    "get": ("flip", "drop"),
}
"""The faults of each collective."""
COLLECTIVES = ",".join(FAULTS_IN)
CHECK = "1,8,257,4099,65543,1M"
ALL = bool(os.environ.get("BUSBAR_ALL_ATTACKS"))
"""Five minutes more; CONTRIBUTING.md says when."""
RATES = (50, 97, 200, 500) if ALL else (97,)
PAYLOAD = {"FAULT_TAG": "13"}  # tag_data and tag_other of exchange.hpp


@dataclass(frozen=True)
class Attack:
    """What the library does, and to which program."""

    fault: str
    every: int = 97
    sizes: str = "64K,1M"
    check: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.fault, str(self.every), self.check, *self.more, *self.more.values()])


# Only messages with payload are spoiled: what is caught is caught by comparing them.
PAYLOAD_ATTACKS = (
    *(Attack(fault, every) for fault in FAULTS for every in RATES),
    *(Attack(fault, every, sizes="", check=CHECK) for fault in FAULTS for every in (7, *RATES)),
    Attack("sent", 97),
    Attack("shift", 97),
    Attack("gap", 97),
    Attack("gap", 7, sizes="", check=CHECK),
    Attack("words", 97),
    Attack("words", 7, sizes="", check=CHECK),
    Attack("source", 97),
    Attack("source", 7, sizes="", check=CHECK),
    Attack("lost", 7),
    Attack("lost", 7, sizes="", check=CHECK),
    Attack("flip", 97, sizes="4M"),
    Attack("flip", 97, more={"FAULT_LEAST": "1048576"}),
    Attack("flip", 500, more={"FAULT_LEAST": "1048576"}),
    Attack("flip", 500, more={"FAULT_MOST": "8"}),
    Attack("half", 200, more={"FAULT_MOST": "65536", "FAULT_LEAST": "65536"}),
    Attack("flip", 97, more={"FAULT_RANK": "0"}),
    Attack("repeat", 97, more={"FAULT_RANK": "1"}),
    Attack("flip", 200, more={"FAULT_AFTER": "3000"}),
    Attack("flip", 97, more={"FAULT_AT": "0"}),
    Attack("flip", 97, more={"FAULT_AT": "100"}),
    Attack("flip", 7, sizes="", check=CHECK, more={"FAULT_UNALIGNED": "64"}),
    Attack("flip", 1, sizes="", check=CHECK, more={"FAULT_LEAST": "2500", "FAULT_MOST": "3900"}),
    *(Attack(fault, 7) for fault in ("late", "restart", "count", "comm", "tag")),
    *(
        Attack(fault, 7, sizes="", check=CHECK)
        for fault in ("late", "restart", "count", "comm", "tag", "from")
    ),
)
# Any message may be hit, or only those by which two ranks agree.
ATTACKS = (
    *(Attack(fault, 97) for fault in FAULTS),
    Attack("flip", 7, sizes="", check=CHECK),
    Attack("flip", 97, more={"FAULT_MOST": "24", "FAULT_LEAST": "24"}),
    Attack("truncate", 50, more={"FAULT_MOST": "24"}),
)


def fewest_compared(text: str, attack: Attack) -> float:
    """Return how many messages of each bandwidth were compared, of the sizes with faults."""
    rows = re.findall(r'"metric": "bandwidth".*"bytes": (\d+),.*"verified": (\d+)', text)
    least = float(attack.more.get("FAULT_LEAST", 0))
    most = float(attack.more.get("FAULT_MOST", math.inf))
    compared = [int(count) for nbytes, count in rows if least <= int(nbytes) <= most]
    return min(compared or (int(count) for _, count in rows), default=math.inf)


@pytest.fixture(scope="module")
def library(root, tmp_path_factory):
    target = tmp_path_factory.mktemp("library") / "faulty_mpi.so"
    source = root / "tests" / "wire" / "faulty_mpi.c"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([BIN / "mpicc", *flags, source, "-o", target, "-ldl"], check=True)
    return target


@pytest.fixture(scope="module")
def judged(root, program, library):
    """Run the program and judge its output as a check does: (results, faults, output)."""
    base = environment(root)

    def run(
        attack: Attack | None, sizes: str, check: str, collectives: str = COLLECTIVES
    ) -> tuple[list[Result], int, str]:
        # A loaded machine may send too few messages in the time for the first fault, or compare
        # fewer than lie between two faults.
        for seconds in (0.05, 0.5, 5):
            results, faults, text = once(attack, sizes, check, collectives, seconds)
            enough = not attack or (faults and fewest_compared(text, attack) >= attack.every)
            if enough or "a control message" in text:
                break
        return results, faults, text

    def once(
        attack: Attack | None, sizes: str, check: str, collectives: str, seconds: float
    ) -> tuple[list[Result], int, str]:
        options = ["--ranks=2", "--buffers=HH", "--window=4", f"--seconds={seconds}"]
        options += [f"--sizes={sizes}", "--latency-sizes=8"] if sizes else []
        options += [f"--check={check}"] if check else []
        options += [f"--collectives={collectives}"] if check and collectives else []
        faults = {}
        if attack:
            faults = {"FAULT": attack.fault, "FAULT_EVERY": str(attack.every), **attack.more}
        crowd = ["--map-by", ":oversubscribe"] if len(os.sched_getaffinity(0)) < 2 else []
        done = ran(
            *(BIN / "mpirun", *crowd, "-n", "2", "env", f"LD_PRELOAD={library}"),
            *(program, *options),
            errors="backslashreplace",
            env={**base, **faults, NONCE: "0123"},
            timeout=300,  # with --seconds=5 beside 20 other programs
        )
        text = done.stdout + done.stderr
        launch = BenchLaunch(
            *("gpu_aware", ("gpu_aware", *options), 2, ()), mixed=True, end=True, nonce="0123"
        )
        lines = [*text.splitlines(), f"exit_status={done.returncode}"]
        # No band, so that nothing but wrong data can fail.
        results = judge("link_matrix", Run(), launch, show("output", lines)).results
        counts = re.findall(r"faulty_mpi: (\d+) faults", text)
        return results, sum(map(int, counts)), text

    return run


@pytest.mark.parametrize(("sizes", "check"), [("64K,1M,4M", ""), ("", CHECK)])
def test_nothing_fails_without_a_fault(judged, sizes, check):
    results, _, text = judged(None, sizes, check)
    assert not [result for result in results if result.verdict is Verdict.FAILED], text


def payload_wrong(results: list[Result]) -> int:
    """Add up the bytes that readings and checks found wrong."""
    found = (re.match(r"(?P<count>\d+) bytes", result.message) for result in results)
    return sum(int(match["count"]) for match in found if match)


@pytest.mark.parametrize("attack", some(PAYLOAD_ATTACKS, 3), ids=str)
def test_wrong_payload_never_passes(judged, attack):
    spoiled = replace(attack, more={**PAYLOAD, **attack.more})
    results, faults, text = judged(spoiled, attack.sizes, attack.check, "")
    assert faults, text
    assert combined(result.verdict for result in results) is Verdict.FAILED, text
    assert payload_wrong(results), text
    assert "a control message" not in text


@pytest.mark.parametrize("attack", some(ATTACKS, 3), ids=str)
def test_wrong_data_never_passes(judged, attack):
    results, faults, text = judged(attack, attack.sizes, attack.check)
    # A rank that stops at a control message does not come to its count.
    assert faults or "a control message" in text, text
    assert combined(result.verdict for result in results) is Verdict.FAILED, text
    assert "arrived wrong" in text


def test_messages_of_an_earlier_run_never_pass(judged, tmp_path):
    """Right bytes once, but not of this run."""
    file = {**PAYLOAD, "FAULT_FILE": str(tmp_path / "messages")}
    judged(Attack("record", more=file), "", CHECK, "")
    results, faults, text = judged(Attack("replay", more=file), "", CHECK, "")
    assert faults, text
    assert payload_wrong(results), text


@pytest.mark.parametrize("operation", some(FAULTS_IN, 2))
def test_a_wrong_collective_never_passes(judged, operation):
    for fault in FAULTS_IN[operation]:
        attack = Attack(fault, 5, more={"FAULT_IN": f"MPI_{operation.capitalize()}"})
        results, faults, text = judged(attack, "", "8,257,4099,65543", operation)
        assert faults, (fault, text)
        spoiled = {result.pair for result in results if payload_wrong([result])}
        assert spoiled - {""} == {operation}, (fault, spoiled)


def test_a_late_get_fails_and_names_the_ucx_that_does_it(judged):
    """UCX before 1.16 completes gets when their window is freed."""
    attack = Attack("unseen", 5, more={"FAULT_IN": "MPI_Get"})
    results, faults, text = judged(attack, "", "257,4099", "get")
    assert faults, text
    late = max(map(int, re.findall(r'"operation": "get".*"late": (\d+)', text)))
    assert bool(late) is bool(re.search(r'"ucx": "1\.(\d|1[0-5])\.', text)), text
    assert payload_wrong(results), text
    (explained,) = explain([Source("log", lambda: io.BytesIO(text.encode()))])
    assert [note.id for note in explained.notes].count("late-gets") == bool(late)


@pytest.mark.parametrize("fault", ["clock", "stall"])
def test_a_clock_that_is_not_the_kernels_never_passes(judged, fault):
    """It may catch up between the times that are measured."""
    results, _, text = judged(Attack(fault), "64K", "")
    assert combined(result.verdict for result in results) is Verdict.FAILED, text
    assert any("clock of the readings" in result.message for result in results), text


def test_no_library_edits_what_is_printed(judged):
    """Lines are written by a system call, and numbers are made without printf."""
    results, faults, text = judged(Attack("edit"), "64K", "")
    assert "faulty_mpi: 0 faults" in text
    assert not faults
    assert not [result for result in results if result.verdict is Verdict.FAILED], text


def test_every_fault_is_documented(root):
    """`docs/faults.md` has a row for each fault of the libraries."""
    sources = [root / f"tests/wire/faulty_{name}.c" for name in ("mpi", "nccl")]
    text = "".join(source.read_text() for source in sources)
    faults = set(re.findall(r'fault_is\("(\w+)"\)', text)) - {"record"}
    rows = re.findall(r"^\| `(\w+)`", (root / "docs/faults.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(faults)


def test_every_message_that_is_checked_is_spoiled_and_seen(judged):
    """Faults are counted by bytes, and none is overlooked where every message is compared."""
    results, faults, _ = judged(Attack("flip", 7, more=PAYLOAD), "", "4099")
    assert payload_wrong(results) == faults > 0
