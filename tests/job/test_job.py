# SPDX-License-Identifier: MIT
"""What `busbar job` says of processes that run, of samples, and of hostile names."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest

from busbar.cli import main
from busbar.commands import job as commands
from busbar.errors import BusbarError
from busbar.job.judge import judge
from busbar.job.node.collect import documents, in_parts
from busbar.job.nodes import commands_of
from busbar.job.sample import NodeSample, Process, read_sample
from busbar.report.job import job_metrics
from busbar.verdict import Verdict
from tests.cases import cases
from tests.files import executable
from tests.gpu.job_faults import judged
from tests.test_terminal import HOSTILE, hidden

RANKS = 4
DATA = Path(__file__).parents[1] / "data/job"


def process(rank: int, state: str = "S", cpu: float = 0.1, **fields: Any) -> Process:
    """A rank that sleeps and uses some CPU time, unless told otherwise."""
    row = Process(
        pid=100 + rank,
        name="python",
        parent=1,
        gone=False,
        age_s=60.0,
        rank=rank,
        local_rank=rank,
        world=RANKS,
        step="",
        settings={},
        space="net:[1]",
        states=state * 11,
        wchan="poll",
        cpu=(cpu,) * 10,
        wait=0.0,
        faults=0.0,
        switches=500.0,
        moved=(0.0,) * 4,
        cut={},
        swap_kib=0,
        allowed="0-3",
        libraries=("/lib/libmpi.so.40",),
        shared=("sm_segment.0",),
        gpu=False,
        files=(),
        numa={},
        stack="",
    )  # type: ignore[arg-type]
    return replace(row, **fields)


def node(*rows: Process, **fields: Any) -> NodeSample:
    """A node with these processes."""
    text = json.dumps(
        {
            "schema": "busbar-job-sample/1",
            "node": "n1",
            "seconds": 5.0,
            "root": False,
            "cpu_s": 0.1,
            "processes": [],
            "others": [],
            "sockets": [],
            "ports": {},
            "limits": {},
            "gpus": [],
            "ras": "",
            "numa": {"0": "0-3", "1": "4-7"},
            "problems": [],
        }
    )
    return replace(read_sample(text), processes=rows, **fields)


FULL = (("/scratch/c", (0, 1 << 30, 5, 10)),)
OTHER = "Thread._bootstrap (threading.py:2);wait (a.py:1) 9\npy-spy> Samples: 18 Errors: 0\n"
LATE = f"{OTHER}<module> (train.py:9);load (data.py:3) 9\n"
WAITS = f"<module> (train.py:9);allreduce (mpi.py:9);wait (mpi.py:3) 9\n{OTHER}"
SENDS = f"<module> (train.py:9);recv (mpi.py:9);wait (mpi.py:3) 9\n{OTHER}"
STEPS = LATE + WAITS
STARVED = {"state": "R", "cpu": 0.2, "wait": 0.8, "switches": 0.0}
"""Computes, and nothing shows who uses its CPUs."""
ONE_CPU = {"wait": 0.4, "allowed": "3", "cpu": 0.3}


def others(**fields: Any) -> list[Process]:
    """The ranks beside rank 2."""
    return [process(rank, **fields) for rank in range(RANKS) if rank != 2]


@cases(
    ("cause", "odd", "rest", "ranks"),
    [
        ("rank-stopped", {"state": "T"}, {}, [2]),
        ("rank-stopped", {"state": "t"}, {"state": "R"}, [2]),
        ("rank-stopped", {"state": "D", "wchan": "__refrigerator"}, {}, [2]),
        ("rank-stopped", {"state": "D", "wchan": "hrtimer_nanosleep"}, {}, [2]),
        ("storage-stalled", {"state": "D", "wchan": "rpc_wait_bit_killable"}, {}, [2]),
        ("cpu-quota", {"cut": {"/sys/fs/cgroup/a": (0.2, 0.8)}}, {}, [2]),
        ("cannot-write", {"files": FULL}, {}, [2]),
        ("cpu-busy", {"wait": 0.4, "allowed": "5"}, {}, [2]),
        ("cpu-affinity", ONE_CPU, {}, [2]),
        ("cpu-affinity", ONE_CPU, ONE_CPU, [0, 1, 2, 3]),
        ("swapping", {"swap_kib": 10**6, "faults": 800.0}, {}, [2]),
        ("memory-far", {"numa": {"1": 10**6, "0": 10}}, {"numa": {"0": 10**6}}, [2]),
        ("rank-late", {"stack": LATE}, {"stack": WAITS}, [2]),
        ("rank-late", {"cpu": 1.0, "switches": 1.0}, {}, [2]),
        ("rank-late", STARVED, {}, [2]),
        ("collective-mismatch", {"stack": SENDS}, {"stack": WAITS}, [2]),
        ("storage-stalled", {"state": "D"}, {}, [2]),
    ],
)
def test_the_rank_that_differs(cause: str, odd: Any, rest: Any, ranks: list[int]) -> None:
    spins = ((7, "spin", 0.9, 5),)
    answer = judge("1", [node(*others(**rest), process(2, **odd), others=spins)])
    assert [each.id for each in answer.causes] == [cause]
    assert answer.causes[0].details["ranks"] == ranks
    assert answer.verdict is not Verdict.PASS


def test_a_rank_that_sleeps_waits_for_nobody() -> None:
    """The one that spins may wait for it."""
    asleep = [process(rank, wchan="hrtimer_nanosleep", switches=0.0) for rank in (0, 1, 3)]
    answer = judge("1", [node(*asleep, process(2, cpu=1.0, switches=1.0))])
    assert answer.causes == ()


@cases("rest", [{"wchan": "wait_woken"}, {"cpu": 1.0}, {"cpu": 0.5, "wait": 0.5}])
def test_others_wait_for_a_rank_that_sleeps(rest: dict[str, Any]) -> None:
    asleep = process(2, wchan="hrtimer_nanosleep", switches=0.0)
    causes = judge("1", [node(*others(**rest), asleep)]).causes
    assert [(each.id, each.details["ranks"]) for each in causes][:1] == [("rank-late", [2])]


def test_the_rank_with_other_transports() -> None:
    """If rank 0 has no shared memory, Open MPI lets all ranks use TCP."""
    rows = [process(rank, shared=()) for rank in range(RANKS)]
    rows[0] = replace(rows[0], settings={"OMPI_MCA_btl": "self,tcp"})
    pairs = [(a, b) for a in range(RANKS) for b in ((a + 1) % RANKS, (a - 1) % RANKS)]
    ends = [(rows[a].pid, f"10.0.0.1:{a}{b}", f"10.0.0.1:{b}{a}", 10, 3, 0) for a, b in pairs]
    ports = {rows[0].space: {"lo": 1e8}}
    answer = judge("1", [node(*rows, sockets=tuple(ends), ports=ports)])
    assert [(c.id, c.details["ranks"]) for c in answer.causes] == [("tcp-within-node", [0])]
    assert "other settings than ranks 1, 2, 3" in answer.headline


@cases(("count", "causes"), [(2, []), (3, ["network-path-slow"])])
def test_a_slow_path_is_one_of_several(count: int, causes: list[str]) -> None:
    """The only path of a job may be one that is full."""
    rows = [process(rank, world=count) for rank in range(count)]
    pairs = [(n, (n + 1) % count) for n in range(count)]
    sockets = [
        (rows[a].pid, f"10.0.0.{a}:{b}", f"10.0.0.{b}:{a}", 10, 9 * (0 in (a, b)), 0)
        for pair in pairs
        for a, b in (pair, pair[::-1])
    ]
    answer = judge("1", [node(*rows, sockets=tuple(sockets))])
    assert [each.id for each in answer.causes] == causes


@cases(("looks", "verdict"), [(10, Verdict.UNKNOWN), (4, Verdict.PASS)])
def test_what_nobody_reads_is_no_exchange(looks: int, verdict: Verdict) -> None:
    """Bytes that are unread at all of ten looks may wait for a rank that hangs."""
    rows = [process(rank) for rank in range(RANKS)]
    ends = ("10.0.0.1:1", "10.0.0.2:2")
    sockets = ((rows[0].pid, *ends, 10, 0, 0), (rows[1].pid, *reversed(ends), 10, 0, looks))
    assert judge("1", [node(*rows, sockets=sockets)]).verdict is verdict


@cases(
    ("fields", "verdict"),
    [
        ({}, Verdict.UNKNOWN),
        ({"cpu": 1.0}, Verdict.PASS),
        ({"gone": True}, Verdict.UNJUDGED),
        ({"age_s": 1.0}, Verdict.UNJUDGED),
        ({"cpu": 1.0, "switches": 1.0}, Verdict.PASS),
        ({"wait": 0.9}, Verdict.UNKNOWN),
        ({"wait": 0.9, "moved": (1e6,) * 4}, Verdict.UNKNOWN),
        ({"stack": STEPS}, Verdict.UNKNOWN),
        ({"states": "", "libraries": None}, Verdict.UNKNOWN),
    ],
)
def test_ranks_that_do_not_differ(fields: Any, verdict: Verdict) -> None:
    answer = judge("1", [node(*others(**fields), process(2, **fields))])
    assert (answer.causes, answer.verdict) == ((), verdict)


def test_a_rank_that_was_not_seen() -> None:
    answer = judge("1", [node(process(0), process(1, cpu=1.0))])
    assert answer.verdict is Verdict.UNJUDGED
    assert "only 2 of 4 ranks" in answer.headline


def test_no_process() -> None:
    assert judge("1", [node()]).verdict is Verdict.UNKNOWN


def test_a_step_of_the_job_runs_on_its_nodes() -> None:
    (words,) = commands_of("7", "", ("n1", "n2"), ())
    assert {"srun", "--jobid=7", "--overlap"} <= {*words}
    assert "--nodelist=n[1-2]" in words
    assert "--het-group=1" in commands_of("7", "1", ("n3",), ())[0]
    assert commands_of("", "", ("n1",), ("ssh",)) == [["ssh", "n1"]]


@cases("text", HOSTILE)
def test_hostile_names(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of processes, files, libraries and stacks are those of others."""
    from busbar.report.job import print_job
    from busbar.terminal import stdout

    name = text.encode("utf-8", "replace").decode()
    files = ((f"/scratch/{name}", (0, 1 << 30, 5, 10)),)
    odd = process(2, "T", name=name, files=files, libraries=(name,), shared=(name,), stack=name)
    answer = judge("1", [node(*others(), odd, others=((1, name, 1.0, 0),), problems=(name,))])
    print_job(answer, stdout())
    shown = capsys.readouterr().out + job_metrics(answer, name)
    assert not hidden(shown)
    assert "\nall is well" not in shown


SAMPLES = {
    "few_threads.json",
    "foreign_process.json",
    "healthy.json",
    "healthy.recorder.json",
    "healthy_compute.json",
    "host_stall.json",
    "late_rank.json",
    "late_rank.recorder.json",
    "mismatch.json",
    "mismatch.recorder.json",
    "one_core.json",
    "p2p_off.json",
}


def test_jobs_on_two_gpus() -> None:
    """Samples of 2 H100: tests/gpu/job_faults.sh made them, each with one fault or none.

    For those with ``recorder`` in their name PyTorch's flight recorder was asked as well.
    """
    assert {path.name for path in DATA.iterdir()} == SAMPLES
    table = judged(DATA)
    assert "7 of 7 faults named, 0 healthy jobs accused" in table
    assert "WRONG" not in table


# ---- real processes
@contextmanager
def running(*scripts: str) -> Iterator[list[int]]:
    """Programs with the environment of ranks."""
    started = []
    for rank, script in enumerate(scripts):
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(scripts)), "NCCL_TOKEN": "hunter2"}
        words = [sys.executable, "-c", script]
        started.append(subprocess.Popen(words, env=os.environ | place))
    try:
        yield [each.pid for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()


def observed(pids: list[int], capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """The document of a look, and its exit status."""
    status = main(["job", "--json", "--seconds", "1", *options, *map(str, pids)])
    return json.loads(capsys.readouterr().out), status


SLEEPS = "import time; time.sleep(60)"


def test_a_stopped_process(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    metrics = tmp_path / "job.prom"
    with running(SLEEPS, SLEEPS, SLEEPS) as pids:
        time.sleep(0.3)
        os.kill(pids[1], signal.SIGSTOP)
        found, status = observed(pids, capsys, "--prometheus", str(metrics))
    assert (found["verdict"], status) == ("failed", 1)
    assert [each["details"]["ranks"] for each in found["causes"]] == [[1]]
    assert found["collector_cpu_s"] < 0.5
    assert "hunter2" not in json.dumps(found)
    assert 'busbar_job_cause{cause="rank-stopped"' in metrics.read_text()


def test_stacks_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a program that is not Python, whether py-spy is installed or not."""
    with running("import os; os.execvp('sleep', ['sleep', '60'])") as pids:
        time.sleep(0.3)
        found, _ = observed(pids, capsys, "--stacks")
    assert any("Python stacks: " in each for each in found["unseen"])


LOADS = "import time\ndef load():\n  while True: time.sleep(0.01)\nload()"
BARRIER = "import time\ndef barrier():\n  while True: time.sleep(0.01)\nbarrier()"


@pytest.mark.skipif(
    not (Path(sys.executable).parent / "py-spy").exists(),
    reason="py-spy is not installed: make dev installs it",
)
def test_stacks_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    with running(BARRIER, LOADS, BARRIER) as pids:
        time.sleep(4.5)  # a younger job is not judged
        found, _ = observed(pids, capsys, "--stacks")
    assert [(c["id"], c["details"]["ranks"]) for c in found["causes"]] == [("rank-late", [1])]
    assert "load" in found["causes"][0]["summary"]


def test_ranks_of_named_hosts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By a shell that joins the words of a command, as ssh does."""
    shell = executable(tmp_path / "shell", 'shift\nexec sh -c "$*"')
    with running(SLEEPS, SLEEPS):
        time.sleep(0.3)
        found, _ = observed([], capsys, "--nodelist", "n1", "--shell", str(shell))
    assert {0, 1} <= {each["rank"] for each in found["ranks"]}


def test_a_process_that_ends_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with running(SLEEPS, "import time; time.sleep(1.2)") as pids:
        time.sleep(0.4)
        found, status = observed(pids, capsys)
    assert (found["verdict"], status) == ("unjudged", 3)
    assert "ending" in found["headline"] or "started" in found["headline"]


@cases("word", ["999999999", "n1", "1;id", "-1x"])
def test_no_such_job(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["job", "--seconds", "1", word])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
    assert not hidden(capsys.readouterr().err)


ONE = "JobId=5{} JobState=RUNNING NodeList=n1"


@cases(
    ("shown", "text"),
    [
        ([ONE.format("1 ArrayTaskId=1"), ONE.format("2 ArrayTaskId=2")], "2 tasks of array 4711"),
        (["JobId=5 JobState=PENDING NodeList="], "Slurm says PENDING"),
    ],
)
def test_jobs_that_are_several(
    shown: list[str],
    text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "parts_of_job", lambda _: "\n".join(shown))
    assert main(["job", "4711_3" if "PENDING" in text else "4711"]) == 2
    assert text in capsys.readouterr().err


def test_components_of_a_heterogeneous_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a step; a node of two is observed once. The id of the first is that of all."""
    row = "JobId={} HetJobId=5 HetJobOffset={} JobState=RUNNING NodeList={}"
    shown = "\n".join((row.format(5, 0, "n[1-2]"), row.format(6, 1, "n[2-3]")))
    monkeypatch.setattr(commands, "parts_of_job", lambda _: shown)
    asked = argparse.Namespace(nodelist="", jobs=["5"])
    assert commands._target(asked) == ({"0": ["n1", "n2"], "1": ["n3"]}, "5", [], "5")
    asked.nodelist = "n[2-3]"
    assert commands._target(asked)[0] == {"0": ["n2"], "1": ["n3"]}
    asked.nodelist = "n9"
    with pytest.raises(BusbarError, match="does not run on it"):
        commands._target(asked)


def test_srun_may_mix_the_lines_of_nodes() -> None:
    one, other = (json.dumps({"node": name, "of": "x " * 2000}) for name in ("n1", "n2"))
    lines = [in_parts(one, "1").splitlines(), in_parts(other, "2").splitlines()]
    assert max(map(len, chain(*lines))) < 1000
    mixed = chain.from_iterable(zip_longest(*lines, fillvalue="a login banner"))
    assert documents("\n".join(mixed)) == [one, other]


@cases("text", ["{}", "[]", "{", '{"schema": 1}', '{"processes": [[]]}'])
def test_another_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_sample(text)


def test_watch_says_what_it_costs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beginning with the second look; it ends when the job has ended."""
    monkeypatch.setattr(commands, "_COST", 1.0)  # else it pauses for 20 s
    with running("import time; time.sleep(4)") as pids:
        main(["job", "--json", "--watch", "--seconds", "1", str(pids[0])])
    shares = re.findall(r'"collector_cpus": (\S+),', capsys.readouterr().out)
    assert shares[0] == "null"
    assert 0 < float(shares[1]) < 1
