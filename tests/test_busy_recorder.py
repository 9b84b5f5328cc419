# SPDX-License-Identifier: MIT
"""The recorder beside a job: what it sees of others, and that it leaves the job as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from busbar.parse.busy import Busy
from busbar.parse.events import parse
from tests.files import executable
from tests.said import ran

SOURCES = Path(__file__).resolve().parents[1] / "reframe_checks" / "src"
UNTIL = "until {condition}; do sleep 0.1; done"
"""A program that ends when the recorder has seen enough, however busy this machine is."""
RECORDED = UNTIL.format(condition="grep -q {word} busy-record.* 2>/dev/null")
SLEEP = shutil.which("sleep") or "sleep"
BRIEFLY = f"""\
case "$1" in
0.1 | 0.25 | 0.5) exec {SLEEP} 0.03 ;;
*) exec {SLEEP} "$@" ;;
esac
"""
# Synthetic: no output of these queries is recorded. Fields and order are those that are asked for.
NVIDIA_SMI = """\
refuse() {
    echo 'Field is not a valid field to query.'
    exit 2
}
case "$*" in
*event_reasons*) [ -z "$OLD" ] || refuse ;;
*throttle_reasons*) [ -n "$OLD" ] || refuse ;;
esac
case "$*" in
*--query-gpu=*)
    echo "0, 00000000:06:00.0, 0, 1980, 1980, 0x0000000000000000"
    echo "1, 00000000:07:00.0, 12, 1200, 1980, 0x0000000000000044" ;;
*--query-compute-apps=*)
    echo "00000000:06:00.0, $STRANGER, 2600"
    echo "00000000:06:00.0, $PPID, 500" # the recorder stands for a rank: it belongs to the job
    echo "00000000:07:00.0, 999999, 100" ;; # a process that is not visible here
"nvlink -gt d")
    count=$(cat "$COUNTER" 2>/dev/null || echo 0)
    echo $((count + 1)) >"$COUNTER"
    for gpu in 0 1; do
        echo "GPU $gpu: NVIDIA H200 (UUID: GPU-1)"
        echo "	 Link 0: Data Tx: $((1000 + gpu * 0 + (1 - gpu) * count * 20000000)) KiB"
        echo "	 Link 0: Data Rx: 500 KiB"
    done ;;
esac
"""


def record(directory: Path, *command: str, **variables: str) -> Busy | None:
    """Run a command under the recorder, as a launcher does; return what a job script prints."""
    launcher = ["sh", "-c", '"$@"; exit $?', "launcher", SOURCES / "busy.sh"]
    environment = {**os.environ, **variables}
    subprocess.run([*launcher, *command], cwd=directory, env=environment, check=False)
    lines = [
        line for file in directory.glob("busy-record.*") for line in file.read_text().splitlines()
    ]
    assert len(lines) <= 1
    event = parse(lines[0]) if lines else None
    assert event is None or isinstance(event, Busy)
    return event


@pytest.fixture(autouse=True)
def _the_recorder_pauses_briefly(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = executable(tmp_path_factory.mktemp("tools") / "sleep", BRIEFLY)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.fixture(params=[["python3", "-c", "while True: pass"]])
def other(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is not the job's; busy, if a test asks for nothing else."""
    with subprocess.Popen(request.param) as process:
        yield process
        process.kill()


def test_others_are_told_from_the_job(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    # Two processes of the job, one of them started by the other: neither is "others".
    # Ticks are of 10 ms, and processes are read one after the other: half a second evens that out.
    busy = record(
        tmp_path, "sh", "-c", spin_until(tmp_path, 2, r'"seconds": \(0[.][5-9]\|[1-9]\).*"wait"')
    )
    assert busy
    assert busy.own > 0.01
    assert busy.others > 0.1
    assert busy.own + busy.others <= busy.cpus * 1.1
    assert busy.cpus == len(os.sched_getaffinity(0))
    assert busy.wait is not None
    # Other arguments are not recorded.
    assert not [process.command for process in busy.processes if " -" in process.command]
    pids = {process.pid for process in busy.processes}
    assert other.pid in pids or len(pids) == 3


def test_a_job_alone_is_not_its_own_load(tmp_path: Path) -> None:
    """Twice as many busy processes as CPUs, all of the job."""
    script = spin_until(tmp_path, 2 * (os.cpu_count() or 1), '"waiting": [0-9.]*[1-9]')
    busy = record(tmp_path, "sh", "-c", script)
    assert busy
    assert busy.waiting
    assert not any(OWN in process.command for process in busy.processes)


OWN = "load-of-the-job"


def spin_until(directory: Path, processes: int, recorded: str) -> str:
    """A script that keeps processes of its own busy until the record has a text."""
    (directory / OWN).symlink_to(shutil.which("sh") or "sh")
    spin = f'./{OWN} -c "while :; do :; done" & own="$own $!"\n' * processes
    until = RECORDED.format(word=f"'{recorded}'")
    return f"{spin}{until}\nkill $own"


@pytest.mark.parametrize(("launcher", "known"), [("prterun", True), ("other", False)])
def test_ranks_that_enter_containers_are_not_strangers(
    tmp_path: Path, launcher: str, known: bool
) -> None:
    """Each rank has a parent of its own there; the launcher is the parent of those."""
    tools = nvidia_smi(tmp_path)
    (tools / launcher).symlink_to(shutil.which("sh") or "sh")
    wait = executable(tmp_path / "wait", RECORDED.format(word="gpu_processes"))
    rank = f'sh -c "{SOURCES / "busy.sh"} {wait}; true"'
    script = f"{SLEEP} 600 & export STRANGER=$!; {rank}; kill $STRANGER"
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "COUNTER": str(tmp_path / "counter"),
        "OLD": "yes",
    }
    subprocess.run([tools / launcher, "-c", script], cwd=tmp_path, env=environment, check=False)
    (file,) = tmp_path.glob("busy-record.*")
    busy = parse(file.read_text())
    assert isinstance(busy, Busy)
    assert [process.command for process in busy.gpu_processes] == (
        [] if known else [f"{SLEEP} 600"]
    )


def nvidia_smi(directory: Path) -> Path:
    """Return a directory with a stand-in for nvidia-smi."""
    return executable(directory / "bin" / "nvidia-smi", NVIDIA_SMI).parent


@pytest.mark.parametrize("status", [0, 3])
def test_the_program_is_unchanged(tmp_path: Path, status: int) -> None:
    script = f"echo out; echo err >&2; read line; echo $line; exit {status}"
    done = ran(SOURCES / "busy.sh", "sh", "-c", script, cwd=tmp_path, input="input\n")
    assert (done.returncode, done.stdout, done.stderr) == (status, "out\ninput\n", "err\n")


def test_only_the_first_rank_of_a_node_records(tmp_path: Path) -> None:
    record(tmp_path, "true", OMPI_COMM_WORLD_LOCAL_RANK="1")
    assert not list(tmp_path.glob("busy-record.*"))


def test_the_recorder_ends_with_the_program(tmp_path: Path) -> None:
    with subprocess.Popen(
        [SOURCES / "busy.sh", "sleep", "60"], cwd=tmp_path, start_new_session=True
    ) as program:
        wait_for(lambda: recorded(tmp_path))
        program.kill()  # it alone, not its group
    wait_for(lambda: session_has_ended(program.pid))


def test_a_printed_record_is_not_written_again(tmp_path: Path) -> None:
    command = ["sh", "-c", UNTIL.format(condition="[ -e done ]")]
    with subprocess.Popen(
        [SOURCES / "busy.sh", *command], cwd=tmp_path, start_new_session=True
    ) as program:
        wait_for(lambda: recorded(tmp_path))
        for file in tmp_path.glob("busy-record.*"):
            file.unlink()
        (tmp_path / "done").touch()
    wait_for(lambda: session_has_ended(program.pid))
    assert not list(tmp_path.glob("busy-record.*"))


def wait_for(event: Callable[[], object]) -> None:
    """Wait for an event; the limit of the test ends it."""
    while not event():
        time.sleep(0.01)


def recorded(directory: Path) -> bool:
    """Whether the recorder has taken two samples: it then writes its first line."""
    return any(file.stat().st_size for file in directory.glob("busy-record.*"))


def session_has_ended(session: int) -> bool:
    listed = ran("ps", "-s", str(session), "-o", "stat=")
    # An orphan that nobody has waited for has ended as well.
    return all(line.startswith("Z") for line in listed.stdout.splitlines())


@pytest.mark.parametrize("other", [[SLEEP, "600"]], indirect=True)
@pytest.mark.parametrize("old", ["", "yes"])
def test_gpus(tmp_path: Path, other: subprocess.Popen[bytes], old: str) -> None:
    tools = nvidia_smi(tmp_path)
    busy = record(
        tmp_path,
        *("sh", "-c", RECORDED.format(word="gpu_processes")),
        PATH=f"{tools}:{os.environ['PATH']}",
        STRANGER=str(other.pid),
        COUNTER=str(tmp_path / "counter"),
        OLD=old,
    )
    assert busy
    first, second = busy.gpus
    assert (first.bus, first.throttle, first.mhz) == ("00000000:06:00.0", 0, 0)
    assert (second.percent, second.throttle, second.mhz, second.max_mhz) == (12, 0x44, 1200, 1980)
    assert [(p.pid, p.gpu, p.mib) for p in busy.gpu_processes] == [(other.pid, 0, 2600)]
    assert first.link_gb_per_s is not None
    assert 0 < first.link_gb_per_s <= 110  # 20 GB in 0.2 s or, on a busy machine, more
    assert second.link_gb_per_s == 0


def recorded_with(directory: Path, files: dict[str, str], later: dict[str, str]) -> Busy:
    """Record a program with another /sys, of which files change after the first sample."""

    def write(contents: dict[str, str]) -> None:
        for name, text in contents.items():
            file = directory / "sys" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    write(files)
    record = directory / "record"
    record.touch()
    command = ["sh", "-c", UNTIL.format(condition="[ -e done ]")]
    with subprocess.Popen(command, cwd=directory) as program:
        variables = {"rank": program.pid, "root": os.getpid(), "host": "n1", "file": record}
        variables["sysfs"] = directory / "sys"
        words = [word for name, value in variables.items() for word in ("-v", f"{name}={value}")]
        with subprocess.Popen(["awk", *words, "-f", SOURCES / "busy.awk"]):
            wait_for(lambda: record.stat().st_size)
            write(later)
            (directory / "done").touch()
    found = parse(record.read_text())
    assert isinstance(found, Busy)
    return found


def test_gpus_of_amd(tmp_path: Path) -> None:
    """Node 0 of amdkfd's topology is a CPU; the third GPU is a partition of the second."""
    kfd, stranger = "class/kfd/kfd", os.getppid()  # the job is this process
    files = {f"{kfd}/topology/nodes/0/gpu_id": "0\n"}
    for node, (id_, location) in enumerate([(51552, 49408), (8891, 54528), (8892, 54529)], 1):
        files[f"{kfd}/topology/nodes/{node}/gpu_id"] = f"{id_}\n"
        properties = f"simd_count 440\nlocation_id {location}\ndomain 0\n"
        files[f"{kfd}/topology/nodes/{node}/properties"] = properties
    files["bus/pci/devices/0000:c1:00.0/gpu_busy_percent"] = "97\n"
    files["bus/pci/devices/0000:d5:00.0/gpu_busy_percent"] = "0\n"
    files[f"{kfd}/proc/{stranger}/vram_51552"] = f"{3 << 30}\n"
    files[f"{kfd}/proc/{stranger}/vram_8891"] = "0\n"
    files[f"{kfd}/proc/{os.getpid()}/vram_51552"] = "0\n"
    files[f"{kfd}/proc/9999999/vram_8891"] = f"{1 << 30}\n"  # not visible here
    busy = recorded_with(tmp_path, files, {})
    assert [(gpu.gpu, gpu.bus, gpu.percent) for gpu in busy.gpus] == [
        (0, "0000:c1:00.0", 97),
        (1, "0000:d5:00.0", 0),
        (2, "0000:d5:00.1", 0),
    ]
    assert [(p.pid, p.gpu, p.mib) for p in busy.gpu_processes] == [(stranger, 0, 3072)]


PORT = "class/infiniband/mlx5_0/ports/1"
ETHERNET, OVER_IB = "class/net/eth9", "class/net/ib9"


def test_ports_and_what_they_carry(tmp_path: Path) -> None:
    fixed = {f"{PORT}/rate": "400 Gb/sec (4X NDR)\n", f"{PORT}/counters/port_xmit_data": "0\n"}
    for name, kind in ((ETHERNET, "1"), (OVER_IB, "32")):
        fixed |= {f"{name}/device": "", f"{name}/type": kind, f"{name}/speed": "100000\n"}
        fixed |= {f"{name}/statistics/tx_bytes": "5\n", f"{name}/statistics/rx_bytes": "0\n"}
    counter = f"{PORT}/counters/port_rcv_data"
    late = {counter: f"{10**10}\n", f"{OVER_IB}/statistics/tx_bytes": f"{10**12}\n"}
    busy = recorded_with(tmp_path, {**fixed, counter: "7\n"}, late)
    (port,) = busy.nics
    assert (port.name, port.gb_per_s, port.link_gb_per_s) == ("mlx5_0", 0, 50)
    # 40 GB since the job began, which is a little later than the record.
    assert port.during_gb_per_s * busy.seconds > 0.9 * 40


def groups(version: int) -> dict[str, str]:
    """A cgroup with a limit of one and a half CPUs, as a container sees its own."""
    if version == 2:
        return {
            "fs/cgroup/cgroup.controllers": "cpu memory\n",
            "fs/cgroup/cpu.max": "150000 100000\n",
            "fs/cgroup/cpu.pressure": "some avg10=0.00 total=1000\n",
            "fs/cgroup/cpu.stat": "usage_usec 5\nnr_throttled 0\nthrottled_usec 0\n",
        }
    controller = next(
        line.split(":")[1]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if "cpu" in line.split(":")[1].split(",")
    )
    return {
        f"fs/cgroup/{controller}/cpu.cfs_quota_us": "150000\n",
        f"fs/cgroup/{controller}/cpu.cfs_period_us": "100000\n",
        f"fs/cgroup/{controller}/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
    }


@pytest.mark.parametrize("version", [1, 2])
def test_the_quota_of_the_job(tmp_path: Path, version: int) -> None:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    hierarchy = "0:" if version == 2 else ":cpu"
    if not any(hierarchy in line for line in lines):
        pytest.skip(f"no cgroup of version {version}")
    before = groups(version)
    after = {
        name: text.replace("throttled_usec 0", "throttled_usec 3000000")
        .replace("throttled_time 0", "throttled_time 3000000000")
        .replace("total=1000", "total=2001000")
        for name, text in before.items()
    }
    busy = recorded_with(tmp_path, before, after)
    assert busy.quota == 1.5
    assert busy.throttled * busy.seconds == pytest.approx(3, rel=0.01)
    assert (busy.job_pressure is None) == (version == 1)
    if busy.job_pressure is not None:
        assert busy.job_pressure * busy.seconds == pytest.approx(2, rel=0.01)


def test_without_awk_there_is_no_record_and_no_error(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "uname", "echo"):
        (tools / name).symlink_to(shutil.which(name) or name)
    done = ran(
        "/bin/sh", SOURCES / "busy.sh", "echo", "ran", cwd=tmp_path, env={"PATH": str(tools)}
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ran\n", "", 0)
    assert not list(tmp_path.glob("busy-record.*"))
