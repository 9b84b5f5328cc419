# SPDX-License-Identifier: MIT
"""Stores that another program has changed: one error with file and row, in bounded time."""

from __future__ import annotations

import re
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from busbar import cli
from busbar.history import reframe
from busbar.history.store import FILE

NIGHTS = "".join(
    f'{{"time": "2026-01-{n:02d}T02:00:00Z", "site": "alpha", "metric": "busbw 16 MiB",'
    f' "unit": "GB/s", "value": {100 + n}, "low": 90, "provenance": {{"driver": "1"}}}}\n'
    for n in range(1, 12)
)
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n"
EDITS = [
    "UPDATE reading SET time = -1e15",
    "UPDATE reading SET time = 0",
    "UPDATE reading SET time = 9e18",
    "UPDATE reading SET time = 'yesterday'",
    "UPDATE reading SET time = 253402300799.0",
    "UPDATE reading SET value = 'fast'",
    "UPDATE reading SET value = 9e999",
    "UPDATE reading SET value = x'00ff'",
    "UPDATE reading SET series = 99",
    "UPDATE reading SET series = 'one'",
    "UPDATE reading SET bounds = 77",
    "UPDATE reading SET bounds = 'low'",
    "UPDATE reading SET provenance = 'none'",
    "UPDATE series SET site = 5",
    "UPDATE series SET metric = NULL",
    "UPDATE series SET unit = x'ff'",
    "UPDATE bounds SET low = 'low'",
    "UPDATE provenance SET facts = '{\"driver\": 5}'",
    "UPDATE provenance SET facts = '[]'",
    "UPDATE provenance SET facts = replace(hex(zeroblob(40000)), '0', '[')",
    "DROP TABLE bounds",
    "ALTER TABLE reading ADD COLUMN more TEXT",
    "ALTER TABLE series RENAME COLUMN site TO place",
    f"DROP TABLE series; CREATE VIEW series AS {ENDLESS}",
    f"DROP TABLE reading; CREATE VIEW reading AS {ENDLESS}",
    "CREATE VIEW more AS SELECT 1",
    "CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT * FROM a",
    "CREATE TRIGGER t AFTER INSERT ON reading BEGIN DELETE FROM reading; END",
    "CREATE TABLE other (id)",
]
COMMANDS = ["list", "show", "changes"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with eleven nights of one series."""
    directory = tmp_path_factory.mktemp("kept")
    (directory / "nights.jsonl").write_text(NIGHTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUSBAR_HISTORY", str(directory))
        assert cli.main(["history", "import", str(directory / "nights.jsonl")]) == 0
    return (directory / FILE).read_bytes()


@pytest.fixture(autouse=True)
def _history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the history of each test in a directory of its own."""
    monkeypatch.setenv("BUSBAR_HISTORY", str(tmp_path))


@pytest.mark.timeout(120)
def test_each_edit_is_one_error(
    kept: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    wrong = []
    for edit in EDITS:
        (tmp_path / FILE).write_bytes(kept)
        with closing(sqlite3.connect(tmp_path / FILE)) as db:
            db.executescript(edit)
        refused = False
        for command in COMMANDS:
            status = cli.main(["history", command])
            shown = capsys.readouterr()
            refused |= status == 2
            one = shown.err.count("\n") == 1 and str(tmp_path / FILE) in shown.err
            if status not in (0, 2, 3) or (status == 2 and not one) or "internal" in shown.err:
                wrong.append((edit, command, status, shown.err))
        if not refused:
            wrong.append((edit, "is accepted by all", 0, ""))
    assert not wrong, "\n".join(map(str, wrong))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 10
    assert after.ru_maxrss - before.ru_maxrss < 500_000  # KiB


def test_a_damaged_name_is_one_error(
    kept: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / FILE).write_bytes(kept.replace(b"ON reading (source)", b"ON reading (sourc\xbd)"))
    assert [cli.main(["history", command]) for command in COMMANDS] == [2, 2, 2]
    assert capsys.readouterr().err.count("a malformed name in the database") == 3


FLIPPED = ((b"alpha", b"alphb"), (b"busbw 16", b"busbw 36"), (b'"driver"', b'"drjver"'))


def test_nothing_is_added_to_a_store_with_a_flipped_bit(
    kept: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more.jsonl").write_text(NIGHTS.replace("2026-01", "2025-01"))
    words = ["history", "import", str(tmp_path / "more.jsonl")]
    for old, new in FLIPPED:
        for found in re.finditer(re.escape(old), kept):
            damaged = kept[: found.start()] + new + kept[found.end() :]
            (tmp_path / FILE).write_bytes(damaged)
            assert cli.main(words) == 2
            said = capsys.readouterr().err
            assert f"{tmp_path / FILE}: was changed by another program: " in said
            assert said.count("\n") == 1
            assert (tmp_path / FILE).read_bytes() == damaged
    (tmp_path / FILE).write_bytes(kept)
    assert cli.main(words) == 0


def test_an_honest_store_is_read(kept: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(kept)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute("ANALYZE")
        db.commit()
    assert [cli.main(["history", command]) for command in COMMANDS] == [0, 0, 0]


@pytest.mark.parametrize(
    "table",
    [
        f"CREATE VIEW sessions AS {ENDLESS}; CREATE TABLE metadata (schema_version TEXT)",
        "CREATE TABLE metadata (schema_version TEXT); CREATE TABLE sessions"
        " (uuid, session_start_unix, json_blob); INSERT INTO sessions VALUES (5, 1, '{}')",
        "CREATE TABLE metadata (schema_version TEXT); CREATE TABLE sessions"
        " (uuid, session_start_unix, json_blob); INSERT INTO sessions VALUES ('a', 1, x'00')",
        "CREATE TABLE metadata (schema_version TEXT); CREATE TABLE sessions (uuid)",
    ],
)
def test_sessions_of_another_program(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / reframe.FILE)) as db:
        db.executescript(table)
    assert cli.main(["history", "show"]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert reframe.FILE in shown


@pytest.mark.parametrize("time", ["1970-01-01", "9999-12-31", "1e18"])
def test_a_reading_of_another_age_is_not_imported(
    time: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"time": "{time}", "metric": "bw", "value": 1}}\n')
    assert cli.main(["history", "import", str(tmp_path / "a.jsonl")]) == 2
    assert "line 1: time: " in capsys.readouterr().err
