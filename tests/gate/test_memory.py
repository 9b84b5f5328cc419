# SPDX-License-Identifier: MIT
"""What one look cannot show: a silent driver, a port that flaps, lines that are lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from busbar.gate.findings import GateDocument
from busbar.gate.run import run
from busbar.gate.slurm import SlurmContext
from busbar.verdict import Verdict
from tests.cases import cases, some

from .node import OLD, Node, gpu, kmsg, report
from .test_broken import BROKEN, in_children
from .test_kernel_log import XID

UPTIME_S = 1e6
_NO_ANSWER = ("nvidia-smi", "a mount", "sysfs hangs", "the links", "the driver")
DEAD = [name for name in BROKEN if name.startswith(_NO_ANSWER)]
Look = Callable[..., GateDocument]


@pytest.fixture
def look(node: Node, monkeypatch: pytest.MonkeyPatch) -> Look:
    """One look at the node, some seconds after the first one."""
    node.write("proc/sys/kernel/random/boot_id", "first\n")

    def take(after_s: float = 0.0, slurm: SlurmContext | None = None) -> GateDocument:
        now = UPTIME_S + after_s
        monkeypatch.setattr("busbar.gate.passive._uptime_s", lambda: now)
        monkeypatch.setattr("busbar.gate.run.time.time", lambda: 1.8e9 + after_s)
        memory = node.root / "gate.json"
        return run(node.options(slurm, deadline_s=5.0, memory=memory))

    return take


def drained(look: Look, times: int) -> list[bool]:
    return [look().drain for _ in range(times)]


@pytest.mark.parametrize("name", in_children(some(DEAD, 3)))
def test_what_gives_no_answer_three_times_has_failed(
    node: Node, monkeypatch: pytest.MonkeyPatch, look: Look, in_process: None, name: str
) -> None:
    with monkeypatch.context() as changes:
        BROKEN[name](node, changes)
        looks = [look(300.0 * n) for n in range(3)]
    assert [each.drain for each in looks] == [False, False, True]
    assert "no answer in 3 looks" in looks[-1].reason
    node.smi()
    assert not look(1200).drain


def test_three_looks_without_an_answer_follow_each_other(
    node: Node, look: Look, at_once: None
) -> None:
    for _ in range(2):
        node.smi(script="exit 9")
        assert drained(look, 2) == [False, False]
        node.smi()
        assert look().verdict is Verdict.PASS
    node.smi(script="exit 9")
    assert drained(look, 2) == [False, False]
    # What a job sees counts for nothing.
    assert look(slurm=SlurmContext("n1", job="7")).verdict is Verdict.UNKNOWN
    node.write("proc/sys/kernel/random/boot_id", "second\n")
    assert drained(look, 3) == [False, False, True]


@cases(
    ("file", "text"),
    [
        ("proc/loadavg", "999.0 9 9 1/9 9\n"),
        ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 9 kB\n"),
    ],
)
def test_what_gives_no_answer_on_a_starved_node_proves_nothing(
    node: Node, look: Look, at_once: None, file: str, text: str
) -> None:
    node.write("proc/loadavg", "0.5 0.5 0.5 1/9 9\n")
    node.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n")
    usual = (node.root / file).read_text()
    node.smi(script="exit 9")
    assert drained(look, 2) == [False, False]
    node.write(file, text)
    assert drained(look, 5) == [False] * 5
    node.write(file, usual)
    assert drained(look, 1) == [True]
    node.smi()
    assert look().verdict is Verdict.PASS


def test_a_port_that_flaps_has_failed_for_an_hour(node: Node, look: Look, at_once: None) -> None:
    state = "sys/class/infiniband/mlx5_0/ports/1/state"
    drained = []
    for after in range(0, 4800, 300):
        node.write(state, "1: DOWN\n" if after in (0, 600, 1200) else "4: ACTIVE\n")
        drained.append(look(after).drain)
    assert drained == [True, False, True, False] + [True] * 8 + [False] * 4


def test_a_port_that_flaps_between_looks_is_seen(node: Node, look: Look, at_once: None) -> None:
    counter = "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    drained = []
    for after, count in enumerate((7, 7, 8, 9, 11, 11)):
        node.write(counter, f"{count}\n")
        drained.append(look(300.0 * after).drain)
    assert drained == [False] * 4 + [True] * 2
    node.write("proc/sys/kernel/random/boot_id", "second\n")  # the counter begins anew
    assert not look(4800).drain


def test_errors_that_the_kernel_log_has_forgotten_count(
    node: Node, look: Look, at_once: None
) -> None:
    def log(*records: str) -> None:
        node.write("dev/kmsg", "".join(records))

    node.smi(report(gpu(1, OLD), gpu(2, OLD)))
    log(kmsg("a", 5 * 3600), kmsg("b", 100, number=1))
    assert look().verdict is Verdict.PASS
    log(kmsg("c", 50, number=900))  # all of what was lost had been read
    assert look(60).verdict is not Verdict.UNKNOWN
    log(kmsg(XID, -90, number=901))
    assert "gpu_xid" in look(120).reason
    log(kmsg("d", -200, number=5000))
    assert look(150).verdict is Verdict.FAILED
    node.write("proc/sys/kernel/random/boot_id", "second\n")
    (row,) = (row for row in look(300).checks if row.check == "gpu_xid")
    assert (row.verdict, "has lost lines" in row.note) == (Verdict.UNKNOWN, True)


def test_why_a_hook_has_failed_is_kept_for_the_health_check(
    node: Node, look: Look, at_once: None
) -> None:
    node.write("sys/devices/system/cpu/online", "0\n")
    refused = look(slurm=SlurmContext("n1", job="7", context="prolog_slurmd")).reason
    assert json.loads((node.root / "gate.json").read_text())["refused"] == refused


def _shared(file: Path) -> None:
    file.parent.chmod(0o777)


@cases(
    ("change", "said"),
    [
        (lambda file: file.write_text("{"), "remove it"),
        (lambda file: file.write_text('{"schema": "busbar-gate-memory/9"}'), "its schema is not"),
        (lambda file: file.write_text('{"schema": "busbar-gate-memory/1", "x": 1}'), "cannot be"),
        (lambda file: file.mkdir(), "cannot be read"),
        (_shared, "could redirect files"),
    ],
)
def test_a_bad_memory_is_said_and_drains_nobody(
    node: Node, look: Look, at_once: None, change: Callable[[Path], object], said: str
) -> None:
    file = node.root / "gate.json"
    file.unlink(missing_ok=True)
    change(file)
    result = look()
    node.root.chmod(0o755)
    if file.is_dir():
        file.rmdir()
    assert (result.verdict, result.drain) == (Verdict.UNKNOWN, False)
    assert said in result.problems[0]
