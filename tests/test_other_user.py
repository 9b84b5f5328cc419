# SPDX-License-Identifier: MIT
"""What another user has put where root reads and writes: each attempt is refused, and soon.

`tests/lab/test_hostile_user.py` makes such attempts in a cluster of Slurm.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from busbar.boundary import refuse_foreign_temporary
from busbar.check.surroundings import close_history_lock, own
from busbar.engine.check_document import CheckDocument
from busbar.errors import BusbarError
from busbar.gate.memory import recall
from busbar.gate.site import CommandRule
from busbar.gate.site_commands import judge_commands
from busbar.verdict import Verdict
from tests.files import written
from tests.gate.node import SITE
from tests.results import complete
from tests.said import Command, ran

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away"),
    pytest.mark.timeout(60),
]
ROOT = Path(__file__).resolve().parents[1]
OTHER = 65534
LINE = '{"time": 1.7e9, "site": "a", "metric": "m", "unit": "GB/s", "value": 1.5}\n'


@pytest.fixture
def busbar(capfd: pytest.CaptureFixture[str]) -> Command:
    """Also of what a child of the command prints."""
    return Command(capfd)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    directory = tmp_path / "theirs"
    directory.mkdir()
    os.chown(directory, OTHER, OTHER)
    return directory


def fifo(path: Path) -> None:
    os.mkfifo(path)
    os.chown(path, OTHER, OTHER)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    os.chown(path, OTHER, OTHER)


READS = (
    *("history import {}", "report --mail {}", "sweep analyse {} --limit 1", "site lint {}"),
    *("gate --passive --site {}", "site calibrate --site h200x4 {}"),
)


@pytest.mark.parametrize("plant", [fifo, unix_socket])
def test_what_is_no_file_is_not_waited_for(
    plant: Callable[[Path], None], theirs: Path, busbar: Command
) -> None:
    plant(theirs / "site.yaml")
    plant(theirs / "site.json")
    said = {}
    for line in READS:
        name = "site.json" if "gate" in line else "site.yaml"
        found = busbar(line.format(theirs / name))
        what = found.out if "gate" in line else found.err  # a gate reports and goes on
        if "internal error" in what or not what.strip():
            said[line] = found
    assert not said


def test_the_history_of_another_user_is_read_and_not_written(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    monkeypatch.setenv("BUSBAR_HISTORY", str(tmp_path / "mine"))
    file = written(tmp_path / "lines", LINE)
    assert busbar("history import", file).status == 0
    (tmp_path / "mine" / "busbar.db").rename(theirs / "busbar.db")
    before = (theirs / "busbar.db").read_bytes()
    monkeypatch.setenv("BUSBAR_HISTORY", str(theirs))
    busbar.refuses(f"nobody owns {theirs}", "history import", written(tmp_path / "l2", LINE * 2))
    check = ("--site=local", "--output", tmp_path / "out")
    busbar.refuses(f"nobody owns {theirs}", "check -n none", *check)
    assert busbar("history list --json").json["sources"][0]["readings"] == 1
    assert (theirs / "busbar.db").read_bytes() == before
    assert [path.name for path in theirs.iterdir()] == ["busbar.db"]
    (theirs / "busbar.db").unlink()
    fifo(theirs / "busbar.db")
    assert busbar("history list").status == 2
    (theirs / "busbar.db").unlink()
    monkeypatch.setenv("BUSBAR_HISTORY", str(theirs / "new"))
    busbar.refuses(f"nobody owns {theirs}", "history import", file)


@pytest.mark.parametrize("name", ["new", "of root"])
def test_a_directory_that_another_user_can_rename_is_no_output(
    name: str, theirs: Path, busbar: Command
) -> None:
    output = theirs / name.replace(" ", "-")
    if name == "of root":
        output.mkdir()
    before = list(theirs.rglob("*"))
    for line in ("check -n none --site local", "demo", "gate compile --site h200x4"):
        busbar.refuses(f"nobody owns {theirs}", line, "--output", output)
    assert list(theirs.rglob("*")) == before


def test_root_writes_no_report_into_a_directory_of_another_user(
    theirs: Path, tmp_path: Path, busbar: Command
) -> None:
    """Its owner can replace it by a link between a look and a write."""
    document = complete(CheckDocument, "x")
    results = written(tmp_path / "results.json", json.dumps(document))
    for words in (("--output", theirs / "new"), ("--prometheus", theirs / "busbar.prom")):
        busbar.refuses(f"nobody owns {theirs}", "report", results, *words)
    assert not list(theirs.iterdir())


def test_root_writes_into_no_directory_of_a_group(busbar: Command, tmp_path: Path) -> None:
    """ReFrame followed the links that a member of the group had left for its log and stages."""
    shared, secret = tmp_path / "shared", written(tmp_path / "secret", "x")
    shared.mkdir()
    os.chown(shared, 0, OTHER)
    shared.chmod(0o2775)
    (shared / "reframe.log").symlink_to(secret)
    for line in ("check -n memory --site local --output", "sweep run --site local --output"):
        busbar.refuses(f"--output: the group {OTHER} can write to {shared}", line, shared)
    assert (secret.read_text(), len(list(shared.iterdir()))) == ("x", 1)


def test_a_hard_link_to_the_lock_blocks_no_run(tmp_path: Path) -> None:
    """Anybody can make one if the kernel allows it (protected_hardlinks=0). It stays as it is."""
    victim = written(tmp_path / "victim", "precious")
    victim.chmod(0o640)
    (tmp_path / ".lock").hardlink_to(victim)
    with own(tmp_path), pytest.raises(BusbarError, match="another run uses"), own(tmp_path):
        pass
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", 0o640)


def test_a_contract_runs_no_file_of_another_user(
    theirs: Path, tmp_path: Path, busbar: Command
) -> None:
    """Whoever writes a contract names files, which ReFrame executes."""
    file = written(theirs / "mine.py", "open('F', 'w')\n")
    clause = f"{{require: check, check: mine, file: {file}}}"
    lines = f"site: local\npartition: host\nclauses:\n  - {clause}\n"
    contract = written(tmp_path / "contract.yaml", lines)
    run = ("certify run --contract", contract, "--output", tmp_path / "out")
    busbar.refuses(f"nobody owns {theirs}, and mine.py is executed", *run)


def test_a_record_gets_no_file_that_a_link_of_another_user_names(
    busbar: Command, tmp_path: Path, theirs: Path
) -> None:
    """The record, which others read, would have a copy of it."""
    secret, link = written(tmp_path / "secret", "x"), theirs / "sbom.json"
    link.symlink_to(secret)
    os.lchown(link, OTHER, OTHER)
    contract = written(tmp_path / "c.yaml", "site: local\nclauses: [{require: gate}]\n")
    line = f"certify run --contract {contract} --output {tmp_path}/record --attach"
    busbar.refuses("is a link of nobody, who could redirect it", line, link)
    assert {path.name for path in (tmp_path / "record").iterdir()} <= {".lock"}


def test_no_other_user_opens_the_lock_of_the_history(tmp_path: Path) -> None:
    """A read lock of theirs held up the end of each run for ever."""
    written(tmp_path / ".db.lock", "").chmod(0o644)
    for directory in (tmp_path, tmp_path / "new"):
        close_history_lock(directory)
        assert (directory / ".db.lock").stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").touch()
    close_history_lock(tmp_path / "file")  # the run says so


def linked(lock: Path, victim: Path) -> None:
    os.chown(victim, OTHER, OTHER)
    lock.hardlink_to(victim)


@pytest.mark.parametrize("plant", [linked, lambda lock, _: fifo(lock)])
def test_a_lock_that_another_user_made_is_not_written(
    plant: Callable[[Path, Path], None], tmp_path: Path, busbar: Command
) -> None:
    """As in a directory like /tmp."""
    output = tmp_path / "open"
    output.mkdir()
    output.chmod(0o1777)
    victim = written(tmp_path / "victim", "precious")
    victim.chmod(0o640)
    plant(output / ".lock", victim)
    busbar.refuses("cannot be written", "check -n none --site local --output", output)
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("precious", 0o640)


@pytest.mark.parametrize("place", ["", "of-root"])
def test_temporary_files_of_root_are_in_no_directory_of_another_user(
    place: str, theirs: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    """``sudo -E`` keeps TMPDIR. What is written there can be replaced before it is executed."""
    directory = theirs / place
    directory.mkdir(exist_ok=True)
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for line in ("check --list --site local", "gate compile --site h200x4", "explain x"):
        busbar.refuses(f"nobody owns {theirs}", line)
    assert list(theirs.rglob("*")) == [directory] * bool(place)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    refuse_foreign_temporary()


def test_root_of_a_user_namespace_knows_no_owners(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, the directories of the host's root seem to be nobody's."""
    monkeypatch.setenv("TMPDIR", str(theirs))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(BusbarError, match="nobody owns"):
        refuse_foreign_temporary()
    read = Path.read_text
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path, *a: "0 1000 1\n" if path.name == "uid_map" else read(path, *a),
    )
    refuse_foreign_temporary()


def _below(theirs: Path, program: Path) -> tuple[str, ...]:
    """Root's program, in a directory of root's that its owner's parent can rename."""
    (theirs / "deep").mkdir()
    return (str(program.rename(theirs / "deep" / "program")),)


def _link(theirs: Path, program: Path) -> tuple[str, ...]:
    link = theirs.parent / "link"
    link.symlink_to(program)
    os.lchown(link, OTHER, OTHER)
    return (str(link),)


def _script(theirs: Path, program: Path) -> tuple[str, ...]:
    os.chown(program, OTHER, OTHER)
    program.chmod(0o644)
    return ("/bin/sh", str(program))


def _started(theirs: Path, program: Path) -> tuple[str, ...]:
    os.chown(program, OTHER, OTHER)
    return ("/usr/bin/nice", str(program))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a file beside the directories of the test."""
    file = written(tmp_path / "program", f"#!/bin/sh\ntouch {tmp_path}/executed\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("plant", [None, _below, _link, _script, _started])
def test_a_command_that_another_user_can_change_is_not_executed(
    plant: Callable[[Path, Path], tuple[str, ...]] | None, theirs: Path, program: Path
) -> None:
    run = plant(theirs, program) if plant else ("/usr/bin/nice", str(program))
    (found,) = judge_commands([CommandRule("c", run, 5, "enforce", "critical", "")], 5)
    assert (theirs.parent / "executed").exists() == (plant is None)
    assert found.verdict is (Verdict.UNKNOWN if plant else Verdict.PASS)


@pytest.mark.parametrize("name", ["site.yaml", "here.json"])
def test_a_site_of_another_user_gives_root_no_commands(
    name: str, theirs: Path, program: Path, busbar: Command
) -> None:
    text = SITE.format(gate=f"  commands: [{{name: c, run: [/bin/sh, {program}]}}]")
    mine = written(theirs.parent / "here" / "site.yaml", text)
    assert busbar("gate compile --site", mine, "--output", mine.parent).status == 0
    os.chown(mine.with_name(name), OTHER, OTHER)
    found = busbar("gate --passive --json --site", mine.with_name(name))
    assert "nobody owns" in found.out
    assert not (theirs.parent / "executed").exists()
    if name == "site.yaml":
        busbar.refuses("nobody owns", "gate compile --site", mine)


def test_a_memory_of_another_user_is_not_believed(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    file = written(tmp_path / "memory.json", "{}")
    os.chown(file, OTHER, OTHER)
    with pytest.raises(BusbarError, match="belongs to nobody"):
        recall(file, Path("/"))


@pytest.mark.run
def test_the_script_of_a_night_follows_no_link(theirs: Path, tmp_path: Path) -> None:
    victim = written(tmp_path / "victim", "precious")
    for name in ("last.txt", "metrics.txt"):
        (theirs / name).symlink_to(victim)
    busbar = written(tmp_path / "busbar", "#!/bin/sh\necho $1: refused >&2\nexit 2\n")
    busbar.chmod(0o755)
    places = {"OUTPUT": str(theirs), "METRICS": str(theirs), "BUSBAR": str(busbar)}
    done = ran("sh", ROOT / "ci/slurm/night", "--site", "x", env=os.environ | places)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.splitlines() == ["nightly: refused", "report: refused", "node: refused"]
    assert victim.read_text() == "precious"
