# SPDX-License-Identifier: MIT
"""What surrounds a run may be hostile: it works, or one line says what to do."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.boundary import replace_file
from busbar.check import surroundings
from busbar.errors import BusbarError
from tests.files import LEAVES
from tests.said import ran

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
QUICK = ("check", "--site=local", "-n", "gpu_aware", "--max-retries=0")
FILL = "cp left.json results.json; dd if=/dev/zero of=../zeros bs=1k || true"


def test_what_a_job_does_not_get(monkeypatch) -> None:
    for name in list(os.environ):
        if name.startswith(("RFM_", "SBATCH_")):
            monkeypatch.delenv(name)
    dropped = (
        "SBATCH_ACCOUNT",
        "RFM_TRAP_JOB_ERRORS",
        "RFM_SYSTEM",
        "CUDA_VISIBLE_DEVICES",
        "PMIX_RANK",
    )
    dropped += ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PRTE_LAUNCHED", "MPI_LOCALRANKID")
    kept = ("RFM_VERBOSE", "OMPI_MCA_pml", "PMIX_MCA_psec", "PRTE_MCA_plm", "UCX_TLS", "HOME")
    kept += ("SBATCH_CPU_BIND_LIST",)
    for name in (*dropped, *kept):
        monkeypatch.setenv(name, "1")
    environment = surroundings.environment_of_jobs()
    assert not environment.keys() & set(dropped)
    assert environment.keys() >= set(kept)
    ignored = ["RFM_SYSTEM", "RFM_TRAP_JOB_ERRORS", "SBATCH_ACCOUNT"]
    assert surroundings.ignored_variables() == ignored


@pytest.mark.parametrize("value", [None, ""])
def test_home_is_never_empty(value: str | None, monkeypatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("HOME", value)
    surroundings.set_home()
    assert os.environ["HOME"].startswith("/")
    monkeypatch.setattr(os, "getuid", lambda: 3999999999)
    os.environ["HOME"] = ""
    surroundings.set_home()
    assert os.environ["HOME"] == "/"


def test_full_shared_memory_is_refused(tmp_path: Path, monkeypatch) -> None:
    local, cluster = sites.load("local"), sites.load("p5")
    surroundings.refuse_without_shared_memory(local, tmp_path / "missing")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=32 << 20))
    surroundings.refuse_without_shared_memory(local, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=(32 << 20) - 1))
    with pytest.raises(BusbarError, match="has 31 MiB free, and MPI needs 32 MiB"):
        surroundings.refuse_without_shared_memory(local, tmp_path)
    surroundings.refuse_without_shared_memory(cluster, tmp_path)  # its jobs run elsewhere
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(BusbarError, match="cannot be written"):
        surroundings.refuse_without_shared_memory(local, tmp_path)


@pytest.fixture
def small_files():
    """No file may have more than 100 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_directory_without_space_is_refused(tmp_path: Path, small_files) -> None:
    with pytest.raises(BusbarError, match="cannot be written: File too large; free some space"):
        surroundings.refuse_without_space(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_is_written_whole_or_not(tmp_path: Path, small_files) -> None:
    path = tmp_path / "results.json"
    replace_file(path, "old")
    with pytest.raises(OSError, match="File too large"):
        replace_file(path, "x" * 200_000)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_only_a_file_is_replaced(tmp_path: Path) -> None:
    """Root replaced `/dev/null` by a file."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link, tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            replace_file(path, "text")
    assert pipe.is_fifo()
    assert link.is_symlink()


def refused(directory: Path) -> str:
    with pytest.raises(BusbarError) as caught, surroundings.own(directory):
        pass
    return str(caught.value)


def test_a_directory_has_one_run(tmp_path: Path) -> None:
    with surroundings.own(tmp_path):
        message = refused(tmp_path)
        assert f"(process {os.getpid()} on {socket.gethostname()})" in message
        assert "\n" not in message
    with surroundings.own(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_the_process_decides(number: int, tmp_path: Path, monkeypatch) -> None:
    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", none)
    with surroundings.own(tmp_path):
        assert "another run" in refused(tmp_path)
    lock = tmp_path / ".lock"
    lock.write_text(f"4194399 on {socket.gethostname()}")  # above the largest process id
    with surroundings.own(tmp_path):
        pass
    lock.write_text("1 on another-host")
    assert f"if it has ended, remove {lock}" in refused(tmp_path)


def test_a_lock_is_no_way_to_another_file(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.lock").symlink_to(victim)
    assert "cannot be written" in refused(tmp_path / "out")
    assert victim.read_text() == "precious"


def busbar(*words: str, start: Callable[[], None] | None = None, before=(), **environment: str):
    variables = {name: value for name, value in os.environ.items() if name != "HOME"}
    return ran(*before, BIN / "busbar", *words, env=variables | environment, preexec_fn=start)


@pytest.mark.run
def test_without_home_and_with_settings_of_reframe(tmp_path: Path) -> None:
    done = busbar(
        *(*QUICK, "--json", "--output", str(tmp_path)),
        RFM_TRAP_JOB_ERRORS="1",
        RFM_GENERATE_FILE_REPORTS="0",
        PMIX_RANK="7",
        OMPI_COMM_WORLD_RANK="7",
    )
    assert "ignoring RFM_GENERATE_FILE_REPORTS, RFM_TRAP_JOB_ERRORS: only the" in done.stderr
    document = json.loads(done.stdout)
    assert document["results"]
    assert {row["verdict"] for row in document["results"]} == {"pass"}


@pytest.mark.run
def test_an_output_without_space_is_one_line(tmp_path: Path) -> None:
    done = busbar(
        *(*QUICK, "--output", str(tmp_path)),
        start=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written: File too large" in done.stderr


def in_namespace(script: str) -> list[str]:
    """The words before a command that sees other mounts; skips where that needs more rights."""
    words = ["unshare", "--mount", "sh", "-ec", f'{script}\nexec "$@"', "sh"]
    if (
        os.getuid()
        or subprocess.run([*words, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("mounts need root")
    return words


@pytest.mark.run
def test_a_disk_that_fills_loses_no_reading(tmp_path: Path) -> None:
    check = LEAVES.format(verdict="pass", rows=1).replace("cp left.json results.json", FILL)
    (tmp_path / "fills.py").write_text(check)
    (tmp_path / "out").mkdir()
    small = in_namespace(f"mount -t tmpfs -o size=2m none {tmp_path}/out")
    options = ["--site=local", "-c", str(tmp_path / "fills.py"), "--output", str(tmp_path / "out")]
    done = busbar("check", *options, before=small)
    assert done.returncode == 2
    assert "3 GB/s" in done.stdout
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.run
def test_the_checkout_of_another_user(tmp_path: Path) -> None:
    """Nobody, without a home, with a checkout that cannot be written."""
    script = f"mount --bind {ROOT} {ROOT}; mount -o remount,ro,bind {ROOT}"
    hidden = next((p for p in Path(sys.executable).resolve().parents if not _open(p)), None)
    if hidden:  # the Python of another user: show what is in its directory, not the rest
        for name in os.listdir(hidden):
            part = hidden / name
            if Path(sys.executable).resolve().is_relative_to(part):
                script += f"; mount --bind {part} /mnt; mount -t tmpfs -o mode=755 none {hidden}"
                script += f"; mkdir {part}; mount --bind /mnt {part}"
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    before = [*in_namespace(script), *nobody]
    place = Path(tmp_path.parts[0], tmp_path.parts[1], f"busbar-nobody-{os.getpid()}")
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    try:
        for _ in range(2):
            done = busbar(*QUICK, "--json", "--output", str(place / "out"), before=before)
            assert done.returncode == 0, done.stderr
        done = busbar(*QUICK, "--output", str(ROOT / "out"), before=before)
        assert done.returncode == 2
        assert "cannot be created: " in done.stderr
    finally:
        shutil.rmtree(place)


def _open(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o001)
