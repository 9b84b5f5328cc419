# SPDX-License-Identifier: MIT
"""Processes that wait for each other through pipes, FIFOs and UNIX sockets of this node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from busbar.job.judge import judge
from busbar.verdict import Verdict
from tests.cases import cases

from .test_job import node, observed, process, running

LOCK = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
WRITES = "import os; file = os.open({!r}, os.O_WRONLY)\nwhile True: os.write(file, bytes(4096))"
READS_ONCE = "file = open({!r}, 'rb', 0); file.read(9)\n"
LISTENS = "import socket; end = socket.socket(socket.AF_UNIX); end.bind({0!r}); end.listen()\n"
CALLS = """\
import os, socket, time; end = socket.socket(socket.AF_UNIX)
while not os.path.exists({0!r}): time.sleep(0.1)
time.sleep(0.3); end.connect({0!r})
"""
ACCEPTS = f"{LISTENS}end = end.accept()[0]\n"
SENDS = "end.sendall(bytes(1024))\n"
ANSWERS = "import time\nwhile end.recv(1024): time.sleep(0.01); end.sendall(bytes(1024))"
LAUNCHES = """\
import subprocess, sys
for each in {!r}: last = subprocess.Popen([sys.executable, "-c", each])
last.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_who_is_waited_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Who waits at a pipe or socket is not at fault, but who neither reads nor writes it.

    Two that exchange data pass. The workers of a launcher that gives them no rank are compared.
    """
    one, two, hung, busy = (str(tmp_path / name) for name in ("one", "two", "hung", "busy"))
    os.mkfifo(one)
    os.mkfifo(two)
    waits, hangs = WRITES.format(one), READS_ONCE.format(one) + LOCK
    pair = [WRITES.format(two), READS_ONCE.format(two) + LOCK]
    launcher = [sys.executable, "-c", LAUNCHES.format(pair)]
    healthy = (ACCEPTS.format(busy) + SENDS + ANSWERS, CALLS.format(busy) + ANSWERS)
    with (
        running(waits, hangs) as fifo,
        running(ACCEPTS.format(hung) + ANSWERS, CALLS.format(hung) + SENDS + LOCK) as unix,
        running(*healthy) as exchange,
        subprocess.Popen(launcher, start_new_session=True) as started,
    ):
        try:
            time.sleep(5)  # a younger job is not judged
            looks = [observed(pids, capsys)[0] for pids in (fifo, unix, exchange, [started.pid])]
        finally:
            os.killpg(started.pid, signal.SIGKILL)
    busy_cpus = {"cpu-busy", "cpu-affinity"}  # other tests run beside this one
    named = [[c for c in look["causes"] if c["id"] not in busy_cpus] for look in looks]
    found = [[(c["id"], c["details"]["pids"]) for c in causes] for causes in named]
    late = max(row["pid"] for row in looks[3]["ranks"])
    assert found == [
        [("rank-late", [fifo[1]])],
        [("rank-late", [unix[1]])],
        [],
        [("rank-late", [late])],
    ]
    assert looks[2]["causes"] or looks[2]["verdict"] == "pass"


@cases(
    ("ends", "late"),
    [
        ({}, []),  # two that nobody feeds: it is not known which
        ({"pipe:[1]": {0: 2, 2: 1}, "pipe:[2]": {2: 2, 1: 1}}, [1]),  # 0 <- 2 <- 1
        ({"pipe:[1]": {0: 2, 1: 1, 3: 1}, "pipe:[2]": {2: 2, 1: 1, 3: 1}}, []),  # 1 or 3
        ({"pipe:[1]": {0: 2, 2: 1}, "pipe:[2]": {2: 2, 0: 1}}, []),  # in a circle
        ({"pipe:[1]": {0: 1, 1: 2}, "pipe:[2]": {2: 1, 1: 2}}, []),  # they wait to read
    ],
)
def test_chains(ends: dict[str, dict[int, int]], late: list[int]) -> None:
    rows = [
        process(rank, joints={n: w[rank] for n, w in ends.items() if rank in w})
        for rank in range(4)
    ]
    rows = [
        *(process(n, joints=rows[n].joints, switches=0.0, wchan="pipe_read") for n in (0, 2)),
        process(1, joints=rows[1].joints, switches=0.0, wchan="futex_do_wait"),
        rows[3],
    ]
    answer = judge("1", [node(*rows)])
    assert [c.details["ranks"] for c in answer.causes] == [late] * bool(late)


def test_one_process_has_no_peers() -> None:
    """Its workers are named: it polls, and is no launcher that waits."""
    launcher = replace(process(0), rank=None, world=None)
    workers = [replace(launcher, pid=pid, parent=launcher.pid) for pid in (101, 102)]
    answer = judge("100", [node(launcher, *workers)])
    assert answer.verdict is Verdict.UNKNOWN
    assert "busbar job 101 102" in answer.headline
