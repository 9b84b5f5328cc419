# SPDX-License-Identifier: MIT
"""What a user can put in the way of `busbar job`, run by somebody else or by root."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busbar.engine.documents import last_collectives
from busbar.job.judge import judge
from busbar.job.node import collect, network, process
from busbar.job.node.collect import Look, documents
from busbar.job.nodes import observe, program
from busbar.job.sample import read_sample
from busbar.report.job import job_metrics, print_job
from busbar.terminal import stdout
from tests.cases import cases
from tests.said import ran
from tests.test_terminal import hidden

from .test_job import SLEEPS, node, observed, process as rank, running

NOBODY = 65534
ASKED = {"seconds": 1.0, "stacks": False, "recorder": False}
HOST_PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")


@pytest.mark.skipif(
    os.geteuid() != 0 or not HOST_PYTHON, reason="needs root, and a Python that nobody can run"
)
def test_another_user_sees_nothing_of_a_job() -> None:
    with running(SLEEPS, SLEEPS) as pids:
        time.sleep(0.3)
        asked = {"job": "", "pids": pids, "stacks": False, "recorder": True, "seconds": 1.0}
        found = {}
        for job in ("", "ranks"):
            words = (HOST_PYTHON, "-I", "-S", "-", json.dumps(asked | {"job": job}))
            as_nobody = {"user": NOBODY, "group": NOBODY, "cwd": "/"}
            done = ran(*words, check=True, input=program(), **as_nobody)
            (text,) = documents(done.stdout)
            found = json.loads(text)
            seen = {row["pid"] for row in found["processes"]}
            seen |= {row[0] for rows in (found["sockets"], found["others"]) for row in rows}
            assert not seen & {*pids}  # this user may have ranks of its own


# ---- a RAS socket that is none
@contextmanager
def serving(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server on this host that talks to one client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as client:
                answer(client)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def floods(client: socket.socket) -> None:
    for _ in range(1000):
        client.sendall(bytes(1 << 20))


def drips(client: socket.socket) -> None:
    while True:
        client.sendall(b"x")
        time.sleep(0.2)


@cases("kind", [floods, drips, lambda client: client.recv(1), lambda client: client.close()])
def test_a_ras_socket_that_is_none(kind: Any) -> None:
    """1 GB, a byte now and then, silence, and an end: the deadline of its probe holds."""
    with serving(kind) as place:
        begin = time.monotonic()
        task = process.probe([place], network.ras, 2.0)
        collect.finish([task])
        assert time.monotonic() - begin < 4
        assert sum(len(text) for _, text in task.outcome.values) < 2 << 20


@cases("place", ["10.0.0.1:80", "metadata:80", "localhost:http", ":", "/run/docker.sock"])
def test_ras_of_other_hosts_is_not_asked(place: str) -> None:
    with suppress(ValueError, OSError):
        assert network.ras(place) == ""


# ---- processes
def named(name: str) -> str:
    """A program that calls itself so."""
    call = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name.encode()!r})"
    return f"{call}; time.sleep(60)"


def test_names_of_processes(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("a) R 1 1 (", ") S 1", '"} 1\nx 2', "\x1b[2J\x1b]0;", "a\tb\n")
    with running(*map(named, names)) as pids:
        time.sleep(0.4)
        found, _ = observed(pids, capsys)
    rows = {row["pid"]: row for row in found["ranks"]}
    assert [rows[pid]["program"] for pid in pids] == [name[:15] for name in names]
    assert {state for pid in pids for state in rows[pid]["states"]} == {"S"}


def test_a_huge_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning counts."""
    for number in range(12):
        monkeypatch.setenv(f"NCCL_{number:03}", "x" * 100_000)
    with running(SLEEPS, SLEEPS) as pids:
        time.sleep(0.4)
        line = observe([[]], 1.0, pids=pids)[0][0]
    assert len(line) < 100_000
    assert {row["pid"] for row in json.loads(line)["processes"]} == set(pids)


@cases("text", ['7"} 1\nbusbar_job_cause{cause="x', "7\\", "\n# TYPE x counter"])
def test_labels_of_metrics(text: str) -> None:
    answer = replace(judge(text, [replace(node(rank(0, "T")), node=text)]), job=text)
    shown = job_metrics(answer, text)
    assert not hidden(shown)
    for line in shown.splitlines():
        assert line.startswith(("# HELP busbar_job_", "# TYPE busbar_job_", "busbar_job_"))
        assert (
            line[0] == "#" or line.rpartition("} ")[2].replace(".", "").replace("e+", "").isdigit()
        )


SPITE = """
import mmap, os, threading, time
name = {place!r} + "/lib" + "mpi.so\\n\\x1b[2J" + chr(34) + "}}]"
file = open(name, "wb+")
file.write(bytes(4096))
file.flush()
shown = mmap.mmap(file.fileno(), 4096)
os.mkfifo({place!r} + "/fifo")
fifo = os.open({place!r} + "/fifo", os.O_RDWR)
threading.stack_size(65536)
for _ in range(2000):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
open({place!r} + "/ready", "w").close()
time.sleep(60)
"""
CHANGES = "import os, time; time.sleep(1.2); os.execvp('sleep', ['sleep', '60'])"


def test_files_threads_and_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names that end a line, a FIFO, 2,000 threads; and a rank that starts another program."""
    monkeypatch.setenv("NCCL_DEBUG", '\x1b]0;x\x07\n"}')
    monkeypatch.setenv("SLURM_STEP_ID", "1" * 10_000)
    with running(SPITE.format(place=str(tmp_path)), SLEEPS) as pids:
        while not (tmp_path / "ready").exists():
            time.sleep(0.05)
        with running(CHANGES) as more:
            line = observe([[]], 2.0, pids=[*pids, *more])[0][0]
    sample = read_sample(line)
    rows = {row.pid: row for row in sample.processes}
    assert [path.rpartition("/")[2][:9] for path in rows[pids[0]].libraries or ()] == ["libmpi.so"]
    assert {path.rpartition("/")[2][:6] for path, _ in rows[pids[0]].files} >= {"libmpi", "fifo"}
    assert (rows[more[0]].gone, rows[more[0]].name) == (False, "sleep")
    assert rows[pids[1]].settings["NCCL_DEBUG"] == '\x1b]0;x\x07\n"}'
    assert sample.cpu_s < 0.5
    print_job(judge("", [sample]), stdout())
    assert not hidden(capsys.readouterr().out)


# ---- dumps and drivers that hang
def test_a_dump_that_grows_when_it_is_printed() -> None:
    """Lists in lists: as text, 2^40 characters."""
    nested: list[Any] = ["x"]
    for _ in range(40):
        nested = [nested, nested]
    entry = {"process_group": [nested], "state": "x", "profiling_name": "x", "input_sizes": []}
    document = {"entries": [entry]}
    begin = time.monotonic()
    with pytest.raises(TypeError):
        list(last_collectives(document))
    huge = entry | {"process_group": ["g"], "input_sizes": [[10**17] * 10**6]}
    huge |= {"collective_seq_id": 1}
    assert len(list(last_collectives({"entries": [huge]}))) == 1
    assert time.monotonic() - begin < 1


def test_what_hangs_ends_its_probe_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file system, the kernel log and a driver that do not answer."""
    monkeypatch.setattr(process, "space", lambda _: time.sleep(60))
    monkeypatch.setattr(collect.amdgpu, "gpu_looks", lambda _: time.sleep(60))
    monkeypatch.setattr(collect, "kernel_errors", lambda: time.sleep(60))
    monkeypatch.setattr(collect, "_WAIT_S", 0.5)
    path = tmp_path / "open"
    with running(f"import time; file = open({str(path)!r}, 'w'); time.sleep(60)") as pids:
        time.sleep(0.4)
        known = {pid: process.environment(pid) for pid in pids}
        begin = time.monotonic()
        found = Look(known, ASKED, (time.monotonic(), process.everything())).run()
    assert time.monotonic() - begin < 6
    (row,) = found["processes"]
    assert [str(path), None] in [[*each] for each in row["files"]]
    assert row["states"]
    assert sorted(each.partition(":")[0] for each in found["problems"]) == [
        *("GPUs of AMD", "file systems", "kernel log")
    ]


def test_a_probe_has_little_cpu_time() -> None:
    """It stops, and keeps what it has; what killed children used is counted."""

    def work(_: int) -> None:
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    task = process.probe(range(1000), work, 1.0)
    collect.finish([task])
    assert task.outcome.problem == "stopped after 0.1 s of CPU time"
    assert 4 <= len(task.outcome.values) <= 6


def test_a_name_is_set_by_the_kernel() -> None:
    """Of this process: what `prctl` has set, `stat_of` returns."""
    libc = ctypes.CDLL(None)
    old = ctypes.create_string_buffer(16)
    libc.prctl(16, old)
    try:
        libc.prctl(15, b"x) R 7 (")
        found = process.stat_of(os.getpid())
    finally:
        libc.prctl(15, old)
    assert found
    assert found[:3] == ("x) R 7 (", "R", os.getppid())


def test_a_rank_that_ends_before_it_is_read() -> None:
    """Nothing of it can be read but what was known."""
    with running(SLEEPS) as pids:
        time.sleep(0.3)
        known = {pid: process.environment(pid) for pid in pids}
    found = Look(known, ASKED, (time.monotonic(), process.everything())).run()
    (row,) = found["processes"]
    assert (row["gone"], row["states"]) == (True, "")
    assert judge("", [read_sample(json.dumps(node_document(found)))]).causes == ()


def node_document(found: dict[str, Any]) -> dict[str, Any]:
    """What was found as the document of a node."""
    head = {"schema": "busbar-job-sample/1", "node": "n1", "root": True, "cpu_s": 0.1, "numa": {}}
    return found | head
