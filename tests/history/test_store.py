# SPDX-License-Identifier: MIT
"""The store on file systems that are full, read-only or without locks, and its upkeep."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.history import reframe
from busbar.history.model import HistoryBounds, HistoryKey
from busbar.history.read import history, read_series
from busbar.history.record import HistoryRecord, Measured
from busbar.history.store import FILE, open_store
from tests.said import Command, ran

MOUNTED = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
    reason="mounts need root",
)
FACTS = {"driver": "570.86", "lock.libfabric": "2.0"}
BOUNDS = HistoryBounds(90, 100, 110, 120)
ROW = '{"time": "2026-01-%02dT02:00:00Z", "site": "alpha", "metric": "bw", "value": %d}\n'


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 256 KiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    monkeypatch.setenv("BUSBAR_HISTORY", str(directory))
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(directory)]
    subprocess.run(mount, check=True)
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def report(uuid: str, value: float, time: float = 1767232800.0) -> str:
    """Return a report of ReFrame with one reading of a check of ours and one of another."""
    row = Measured(node="n1", metric="busbw 16 MiB", unit="GB/s", value=value, **vars(BOUNDS))
    stack = {"lane": "ucx-1.14", "delivery": "spack", "provenance": FACTS}
    record = HistoryRecord(check="xccl", partition="gpu", rows=(row,), **stack)
    case = {"name": "x", "system": "alpha", "partition": "gpu", "job_completion_time_unix": time}
    other = {**case, "perfvalues": {"alpha:gpu:lat": [3.5, 3, -0.1, 0.1, "us", "pass"]}}
    return json.dumps(
        {
            "session_info": {"uuid": uuid, "hostname": "h", "time_end_unix": time},
            "runs": [{"testcases": [{**case, "busbar": to_json(record)}, other]}],
        }
    )


def reframe_db(directory: Path, *reports: str, version: str = "1.0") -> None:
    """Write a store as ReFrame 4.10 does."""
    directory.mkdir(exist_ok=True)
    with closing(sqlite3.connect(directory / reframe.FILE)) as db, db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS sessions(uuid TEXT PRIMARY KEY, session_start_unix"
            " REAL, session_end_unix REAL, json_blob TEXT, report_file TEXT)"
        )
        db.execute("CREATE TABLE IF NOT EXISTS metadata(schema_version TEXT)")
        db.execute("DELETE FROM metadata")
        db.execute("INSERT INTO metadata VALUES (?)", (version,))
        for text in reports:
            info = json.loads(text)["session_info"]
            row = (info["uuid"], info["time_end_unix"], info["time_end_unix"], text, None)
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", row)


def test_sessions_of_reframe_are_read_once(store: Path, tmp_path: Path, busbar: Command) -> None:
    reframe_db(store, report("one", 100.0), report("two", 101.0, 1767319200.0))
    for _ in range(2):
        with history() as opened:
            latency, busbw = read_series(opened)
            assert busbw.key == HistoryKey(
                "alpha", "gpu", "n1", "xccl", "busbw 16 MiB", "GB/s", "ucx-1.14", "spack"
            )
            assert busbw.values.tolist() == [100.0, 101.0]
            assert busbw.bounds == BOUNDS
            facts = opened.provenance()[int(busbw.provenance[0])]
            assert facts == FACTS
            assert latency.key == HistoryKey("alpha", "gpu", "", "x", "lat", "us", "", "")
    file = tmp_path / "report.json"
    file.write_text(report("one", 100.0))
    assert busbar("history import", file).status == 0  # the same session
    with history() as opened:
        assert [series.readings for series in read_series(opened)] == [2, 2]


def test_a_store_of_another_version_is_refused(store: Path) -> None:
    reframe_db(store, version="2.0")
    with pytest.raises(BusbarError, match=r"version 2\.0"), history():
        pass
    (store / reframe.FILE).unlink()
    with closing(sqlite3.connect(store / FILE)) as db, db:
        db.execute("PRAGMA user_version = 9")
    with pytest.raises(BusbarError, match="version 9"), history():
        pass


def test_what_is_no_store_is_one_error(store: Path, busbar: Command) -> None:
    store.mkdir()
    (store / FILE).write_text("hello " * 1000)
    assert len(busbar.refuses("", "history changes").err.splitlines()) == 1
    (store / FILE).unlink()
    (store / reframe.FILE).write_text("hello " * 1000)
    busbar.refuses("", "history list --json")


def test_the_version_of_reframe_that_is_locked() -> None:
    from reframe.frontend.reporting.storage import _SqliteStorage

    assert _SqliteStorage.SCHEMA_VERSION == "1.0"


@MOUNTED
def test_a_full_disk_loses_nothing_that_was_stored(
    small: Path, tmp_path: Path, busbar: Command
) -> None:
    good, large = tmp_path / "good.jsonl", tmp_path / "large.jsonl"
    good.write_text("".join(ROW % (day, day) for day in range(1, 20)))
    large.write_text("".join(ROW % (n % 28 + 1, n) for n in range(1, 8000)))
    assert busbar("history import", good).status == 0
    assert "BUSBAR_HISTORY" in busbar.refuses("full", "history import", large).err
    assert busbar("history import", good).status == 0
    assert busbar("history show --json").status == 0
    with history() as opened:
        assert read_series(opened)[0].readings == 19


@MOUNTED
@pytest.mark.parametrize("begun", [True, False])
def test_a_read_only_store_is_read(
    begun: bool, small: Path, tmp_path: Path, busbar: Command
) -> None:
    reframe_db(small, report("one", 100.0))
    if begun:
        assert busbar("history list").status == 0
        reframe_db(small, report("two", 101.0, 1767319200.0))
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    with history() as opened:
        assert not opened.kept
        assert len(read_series(opened)[1].values) == 1 + begun
    said = busbar("history changes")
    assert (said.status, "cannot be written" in said.err) == (0, True)
    file = tmp_path / "a.jsonl"
    file.write_text(ROW % (1, 1))
    busbar.refuses("busbar history import: ", "history import", file)


def test_a_store_without_locks_is_refused_in_one_line(
    store: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    # The kernel refuses locks like this on some network file systems.
    connect = sqlite3.connect

    def without_locks(path: object, *args: object, **options: object) -> sqlite3.Connection:
        if "immutable" in str(path) or str(store) not in str(path):
            return connect(path, *args, **options)  # type: ignore[call-overload,no-any-return]
        raise sqlite3.OperationalError("locking protocol")

    with open_store(store, to_write=True) as opened:
        row = Measured(node="", metric="m", unit="us", value=2.0)
        opened.add("file x", "x", [HistoryRecord(site="a", check="c", time=1e9, rows=(row,))])
    monkeypatch.setattr(sqlite3, "connect", without_locks)
    said = busbar("history show")
    assert (said.status, "2" in said.out) == (0, True)
    busbar.refuses("local disk", "history import", "x.jsonl")


@pytest.mark.run
@MOUNTED
def test_a_run_outlives_a_full_history(small: Path, tmp_path: Path, busbar: Command) -> None:
    (small / "ballast").write_bytes(bytes(240 << 10))
    output = tmp_path / "report"
    command = [sys.executable, "-P", "-m", "busbar", "check", "--site", "local", "-n", "memory"]
    done = ran(*command, "--output", output)
    assert done.returncode in (0, 3), done.stderr
    assert "this run is not in the history" in done.stderr
    (small / "ballast").unlink()
    for file in (output / "reframe.json", output / "results.json"):
        assert busbar("history import", file).status == 0
    with history() as opened:
        found = read_series(opened)
        assert found
        assert {series.readings for series in found} == {1}  # both files are of one session
        assert "kernel" in opened.provenance()[int(found[0].provenance[-1])]
    shutil.rmtree(output)
