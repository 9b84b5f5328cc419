# SPDX-License-Identifier: MIT
"""The program ``gpu_aware``, run for real over host memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from busbar.delivery.reframe import configuration
from busbar.engine.collect import show
from busbar.engine.launch import NONCE, LaunchOutput
from busbar.parse.events import Check, Copy, Error, Event, Flag, Idle, Start
from tests.cases import some
from tests.said import ran

pytestmark = pytest.mark.run

BIN = Path(sys.executable).parent
FAST = ["--seconds=0.01"]


def environment(root: Path) -> dict[str, str]:
    """What the checks' job scripts export, for the default lane."""
    variables = configuration(root / "site" / "local")["environments"][0]["env_vars"]
    script = " ".join(f"{name}={value}" for name, value in variables)
    shown = ran("bash", "-c", f"export {script}; env -0", check=True)
    found = dict(item.split("=", 1) for item in shown.stdout.split("\0") if item)
    # Open MPI cannot start where a killed mpirun of the same process number left its session.
    return found | {"PRTE_MCA_prte_tmpdir_base": os.environ["BUSBAR_TEST_FILES"]}


@pytest.fixture(scope="module")
def launch(root, program):
    """Runs it with ``ranks`` ranks: (exit status, run, standard output and error)."""
    base = environment(root)

    def run(ranks: int, *options: str, timeout: float = 300, **more: str):
        crowd = ["--map-by", ":oversubscribe"] if ranks > len(os.sched_getaffinity(0)) else []
        command = [BIN / "mpirun", *crowd, "-n", str(ranks), program, *options]
        done = ran(*command, errors="backslashreplace", env={**base, **more}, timeout=timeout)
        return done.returncode, show("output", done.stdout.splitlines()), done.stdout + done.stderr

    return run


def events(run: LaunchOutput, kind: type[Event]) -> list[Event]:
    assert not run.facts.malformed
    return [event for event, _ in run.facts.events_of(kind)]


def pairs(run: LaunchOutput) -> set[tuple[int, int]]:
    return {(reading.source, reading.target) for reading in run.readings}


def test_measures_every_ordered_pair_in_one_launch(launch):
    status, run, _ = launch(
        3, "--ranks=3", "--sizes=64K,1M", "--latency-sizes=8", "--check=1,4099", "--copy", *FAST
    )
    assert status == 0
    assert run.facts.finished
    everybody = {(a, b) for a in range(3) for b in range(3) if a != b}
    assert pairs(run) == everybody
    assert len(run.readings) == len(everybody) * 3
    assert all(reading.value > 0 and reading.wrong == 0 for reading in run.readings)
    checks = events(run, Check)
    assert len(checks) == len(everybody) * 2
    assert all(check.wrong == 0 for check in checks)
    assert {rank.rank for rank in run.ranks} == {0, 1, 2}
    assert all(rank.cpus for rank in run.ranks)
    assert {copy.method for copy in events(run, Copy)} == {"memcpy", "process_vm_readv"}
    assert {(flag.source, flag.target) for flag in events(run, Flag)} == everybody


def test_collectives_are_correct(launch):
    names = "bcast,allgather,alltoall,allreduce,reduce_scatter_block"
    status, run, _ = launch(3, "--ranks=3", "--check=1,4099,1M", f"--collectives={names}")
    assert status == 0
    checks = events(run, Check)
    assert {check.operation for check in checks} == {"send_recv", *names.split(",")}
    assert all(check.wrong == 0 for check in checks)


def test_rounds_pair_everybody_at_once(launch):
    status, run, _ = launch(4, "--ranks=4", "--sizes=64K", "--schedule=rounds", *FAST)
    assert status == 0
    assert pairs(run) == {(a, b) for a in range(4) for b in range(4) if a != b}


def test_ranks_on_one_cpu_wait_for_each_other(launch):
    """Each reading tells how long; a kernel that does not count is not taken for one of 0."""
    counted = Path("/proc/self/schedstat")
    if not counted.exists() or counted.read_text().startswith("0 "):
        pytest.skip("the kernel does not count how long threads wait for a CPU")
    cpus = os.sched_getaffinity(0)
    options = ("--ranks=2", "--sizes=64K,1M", "--latency-sizes=8", *FAST)
    _, apart, _ = launch(2, *options)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        _, together, _ = launch(2, *options)
    finally:
        os.sched_setaffinity(0, cpus)
    assert len(apart.readings) == len(together.readings) == 6
    for reading in apart.readings:
        assert reading.cpu_wait_share is not None
    for reading in together.readings:
        assert reading.cpu_wait_share > 0.5


def test_idle_ranks_sleep(launch):
    _, run, _ = launch(4, "--ranks=4", "--sizes=1M", "--seconds=0.1")
    idle = events(run, Idle)
    assert len(idle) == 4
    for rank in idle:
        assert rank.seconds > 0.3  # half of the pairs are other ranks' business
        assert rank.cpu_seconds < 0.2 * rank.seconds


@pytest.mark.parametrize("rank", some([0, 1], 2))
def test_spoilt_bytes_are_seen(launch, rank):
    status, run, output = launch(
        2, "--ranks=2", "--sizes=64K", "--check=4099", f"--inject=corrupt:{rank}", *FAST
    )
    assert status == 1
    assert "bytes arrived wrong" in output
    wrong = {(check.source, check.target): check.wrong for check in events(run, Check)}
    assert wrong[(rank, 1 - rank)] > 0
    assert wrong[(1 - rank, rank)] == 0
    readings = {(reading.source, reading.target): reading.wrong for reading in run.readings}
    assert readings[(rank, 1 - rank)] > 0
    assert readings[(1 - rank, rank)] == 0


@pytest.mark.parametrize("rank", some([0, 1], 2))
def test_a_rank_that_omits_prints_no_reading(launch, rank):
    status, run, _ = launch(2, "--ranks=2", "--sizes=64K", f"--inject=omit:{rank}", *FAST)
    assert status == 0
    assert pairs(run) == {(1 - rank, rank)}


@pytest.mark.parametrize("rank", some([0, 1], 2))
def test_a_rank_that_miscounts_reads_ten_times_as_much(launch, rank):
    _, _, output = launch(2, "--ranks=2", "--sizes=64K", f"--inject=miscount:{rank}", *FAST)
    lines = [json.loads(x) for x in output.splitlines() if x.startswith('{"event": "reading"')]
    moved = {x["from"]: 1e9 * x["gb_per_s"] * x["seconds"] for x in lines}
    carried = {x["from"]: x["bytes"] * x["window"] for x in lines}
    assert moved[rank] == pytest.approx(10 * carried[rank], rel=1e-3)
    assert moved[1 - rank] == pytest.approx(carried[1 - rank], rel=1e-3)


def test_a_rank_that_hangs_does_not_end(root, program):
    words = ["--ranks=2", "--sizes=64K", "--inject=hang", *FAST]
    crowd = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    with subprocess.Popen(
        [BIN / "mpirun", "-n", "2", program, *words],
        stdout=subprocess.PIPE,
        env=environment(root) | crowd,
    ) as hanging:
        assert hanging.stdout
        lines = iter(hanging.stdout.readline, b"")
        assert any(b'"event": "reading"' in line for line in lines)
        time.sleep(1)
        assert hanging.poll() is None
        hanging.terminate()
        assert not any(b'"event": "end"' in line for line in lines)


def test_the_nonce_is_repeated(launch):
    _, run, _ = launch(2, "--ranks=2", **{NONCE: "6a09e667f3bcc908"})
    assert [start.nonce for start in events(run, Start)] == ["6a09e667f3bcc908"]


def test_a_dead_rank_ends_the_run(launch):
    status, run, _ = launch(2, "--ranks=2", "--sizes=64K", "--inject=die", *FAST)
    assert status != 0
    assert not run.facts.finished
    assert pairs(run) == {(0, 1)}  # what was measured before is kept


def test_fewer_ranks_than_asked(launch):
    status, run, output = launch(2, "--ranks=4", "--sizes=64K")
    assert status == 3
    assert "asked for 4 ranks, MPI started 2" in output
    assert {error.code for error in events(run, Error)} == {"rank-count"}
    assert not run.readings


def test_a_singleton_says_so(root, program):
    done = ran(program, "--ranks=2", env=environment(root))
    assert done.returncode == 3
    assert "asked for 2 ranks, MPI started 1" in done.stderr


def lanes(text: str) -> set[tuple[str, ...]]:
    """What joins the ranks, by UCX's own log."""
    facts = show("output", text.splitlines()).facts
    return {each.lanes for each in facts.endpoints if not each.loopback}


def test_transport_is_named_by_ucx(launch):
    _, _, healthy = launch(2, "--ranks=2", "--sizes=64K", *FAST)
    assert lanes(healthy)
    assert all({*used} & {"sysv", "posix"} for used in lanes(healthy))
    _, _, forced = launch(2, "--ranks=2", "--sizes=64K", *FAST, UCX_TLS="tcp,self")
    assert lanes(forced) == {("tcp",)}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--ranks N is needed"),
        (["--ranks=2", "--sizes=3x"], "'3x' is not a size"),
        (["--ranks=2", "--sizes=0"], "'0' is not a size"),
        (["--ranks=2", "--sizes=-1"], "'-1' is not a size"),
        (["--ranks=2", "--buffers=DX"], "--buffers 'DX' is unknown; there are: DD, HD, DH, HH"),
        (["--ranks=2", "--buffers=DD"], "was built for host memory"),
        (["--ranks=2", "--schedule=all"], "--schedule 'all' is unknown"),
        (["--ranks=2", "--collectives=bcast"], "--collectives needs --check"),
        (["--ranks=2", "--window=0"], "--window must be 1 or more"),
        (["--ranks=2", "extra"], "'extra' is not an option"),
    ],
)
def test_a_wrong_option_is_one_sentence(program, options, says):
    done = ran(program, *options)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""


def test_hip_back_end_compiles(root, tmp_path):
    hipcc = shutil.which("hipcc")
    if not hipcc:
        pytest.skip("hipcc is not installed (Debian: apt install hipcc); .ci/run installs it")
    target = tmp_path / "gpu_aware"
    source = root / "reframe_checks" / "src" / "gpu_aware.cpp"
    flags = ["-O2", "-std=c++17", "-DGPU_HIP"]
    done = ran(
        BIN / "mpic++", *flags, source, "-ldl", "-o", target, env={**os.environ, "OMPI_CXX": hipcc}
    )
    assert done.returncode == 0, done.stderr
    needed = ran("ldd", target, check=True).stdout
    assert "libamdhip64" in needed
