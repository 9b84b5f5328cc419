# SPDX-License-Identifier: MIT
"""A signal to ``busbar check`` at any time leaves no process, and keeps what was measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cases import some
from tests.files import LEAVES, executable
from tests.said import ran

pytestmark = pytest.mark.run
BIN = Path(sys.executable).parent
SITES = Path(__file__).parents[1] / "site"
ENDS_S = 120.0
"""On a busy machine. What does not end of itself sleeps longer."""
MARK = "MARK_OF_TEST"


@dataclass
class Run:
    """A running command, in a process group of its own."""

    output: Path
    options: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    command: Sequence[str] = ("check",)

    def __post_init__(self) -> None:
        self.mark = f"{MARK}={self.output}"
        name, value = self.mark.split("=", 1)
        self.err = self.output.with_suffix(".err")
        # A shell that starts the tests in the background has them ignore SIGINT.
        command = ["env", "--default-signal=INT", BIN / "busbar", *self.command]
        with self.err.open("w") as err:
            self.process = subprocess.Popen(
                [*command, "--output", self.output, *self.options],
                stdout=subprocess.DEVNULL,
                stderr=err,
                env={**os.environ, name: value, **self.variables},
                start_new_session=True,
            )

    def is_mine(self, process: Path) -> bool:
        return self.mark.encode() in (process / "environ").read_bytes().split(b"\0")

    def left(self) -> list[str]:
        """The command lines of all processes of the run, wherever they hang."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if self.is_mine(directory):
                    found.append(
                        (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    )
            except OSError:
                continue
        return found

    def wait_for(self, reached: Callable[[Run], bool]) -> None:
        end = time.monotonic() + 240
        while time.monotonic() < end:
            assert self.process.poll() is None, self.err.read_text()
            if reached(self):
                return
            time.sleep(0.02)
        raise AssertionError(f"{self.err.read_text()}\n{self.left()}")

    def results(self) -> dict[str, object]:
        return json.loads((self.output / "results.json").read_text())


def says(text: str) -> Callable[[Run], bool]:
    return lambda run: text in run.err.read_text()


def ranks(run: Run) -> bool:
    return sum("/gpu_aware --ranks" in line for line in run.left()) >= 2


def hang(
    tmp_path: Path, options: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> Run:
    more = "link_matrix.more_options=--seconds=0.05 --inject=hang"
    return Run(
        tmp_path / "out",
        ["--site=local", "-n", "link_matrix", "--max-retries=0", "-S", more, *options],
        dict(variables or {}),
    )


def in_set_up(tmp_path: Path) -> Run:
    deaf = executable(tmp_path / "tools" / "nvidia-smi", "trap '' TERM INT HUP\nsleep 600")
    path = f"{deaf.parent}:{os.environ['PATH']}"
    (tmp_path / "out").mkdir()
    (tmp_path / "out/reframe.json").write_text('{"session_info": {"uuid": "of an earlier run"}}')
    run = Run(tmp_path / "out", [], {"PATH": path})
    run.wait_for(lambda run: any("sleep 600" in line for line in run.left()))
    # The tools of the machine run while modules are imported, before the run begins.
    run.wait_for(lambda run: (run.output / ".lock").exists())
    time.sleep(0.5)
    return run


def in_build(tmp_path: Path) -> Run:
    # The cache of the machine may hold the program already.
    run = hang(tmp_path, variables={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    run.wait_for(lambda run: any("cc1plus" in line for line in run.left()))
    return run


def in_run(tmp_path: Path) -> Run:
    run = hang(tmp_path)
    run.wait_for(ranks)
    time.sleep(0.5)
    return run


def in_repetition(tmp_path: Path) -> Run:
    check = tmp_path / "slow.py"
    check.write_text(LEAVES.format(verdict="degraded", rows=1))
    run = Run(tmp_path / "out", ["--site=local", "-c", str(check)])
    run.wait_for(lambda run: any("sleep 600" in line for line in run.left()))
    return run


def in_report(tmp_path: Path) -> Run:
    check = tmp_path / "many.py"
    check.write_text(LEAVES.format(verdict="pass", rows=20_000))
    run = Run(tmp_path / "out", ["--site=local", "-c", str(check)])
    run.wait_for(lambda run: (run.output / "results.json").exists())
    return run


PHASES = [in_set_up, in_build, in_run, in_repetition, in_report]
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[None]:
    """Leave nothing of a failed test."""
    yield
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={tmp_path}".encode() in (directory / "environ").read_bytes():
                os.kill(int(directory.name), signal.SIGKILL)
        except OSError:
            continue


def interrupt(run: Run, number: signal.Signals, group: bool) -> dict[str, object] | None:
    """Send the signal; return the results when no process is left."""
    start = time.monotonic()
    (os.killpg if group else os.kill)(run.process.pid, number)
    status = run.process.wait(timeout=ENDS_S)
    while left := run.left():
        assert time.monotonic() - start < ENDS_S, left
        time.sleep(0.02)
    killed = number is signal.SIGKILL
    assert status == (-number if killed else 128 + number), run.err.read_text()
    assert "Traceback" not in run.err.read_text()
    results = run.results()
    assert results["interrupted"] == number.name
    assert results["verdict"] != "pass"
    assert (run.output / "report.html").exists()
    return results


# In turn to the command alone and to its group; SIGINT and SIGHUP while a program runs.
CASES = [
    (phase, number, bool((PHASES.index(phase) + SIGNALS.index(number)) % 2))
    for phase in PHASES
    for number in SIGNALS
    if number in (signal.SIGTERM, signal.SIGKILL) or phase in (in_build, in_run)
]


@pytest.mark.parametrize(("phase", "number", "group"), some(CASES, 3))
def test_nothing_is_left(tmp_path, phase, number, group, ended):
    results = interrupt(phase(tmp_path), number, group)
    messages = {row["check"]: row["message"] for row in results["results"]}
    assert messages["busbar check"] == f"{number.name} ended the run"
    if phase is in_set_up:
        assert results["sessions"] == []
    if phase in (in_build, in_run):
        assert {"link_matrix", "BuildGpuAware"} & {*messages, *_skipped(results)}
    if phase is in_report:
        assert any(row["gb_per_s"] for row in results["results"])
    if phase is in_repetition:  # what was slow once is not degraded yet
        assert results["verdict"] == "unknown"


@pytest.mark.long
def test_ranks_that_ignore_signals_are_killed(tmp_path, ended):
    deaf = executable(tmp_path / "deaf", "trap '' TERM INT HUP USR1 USR2\nexec setsid \"$@\"")
    run = hang(tmp_path, options=["-S", f"link_matrix.wrapper={deaf}"])
    run.wait_for(ranks)
    interrupt(run, signal.SIGTERM, group=False)


@pytest.mark.long
def test_a_dead_child_of_the_command_leaves_nothing(tmp_path, ended):
    """As the kernel does when memory runs out."""
    run = in_run(tmp_path)
    (child,) = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    assert run.process.wait(timeout=ENDS_S) == 137
    assert not run.left()
    assert "SIGKILL ended the command before its verdict" in run.err.read_text()


def test_a_dead_reframe_is_a_failure(tmp_path, ended):
    run = in_run(tmp_path)
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes()
            if b"reframe_process" in words and run.is_mine(directory):
                os.kill(int(directory.name), signal.SIGKILL)
        except OSError:
            continue
    assert run.process.wait(timeout=ENDS_S) == 1
    assert not run.left()
    results = run.results()
    assert results["interrupted"] is None
    assert any("SIGKILL ended ReFrame" in row["message"] for row in results["results"])


def test_two_runs_with_one_output(tmp_path, ended):
    first = in_run(tmp_path)
    second = ran(BIN / "busbar", "check", "--site=local", "--output", first.output)
    assert second.returncode == 2
    (line,) = second.stderr.splitlines()
    assert "another run uses this directory (process " in line
    interrupt(first, signal.SIGKILL, group=True)
    # A lock does not outlive its process.
    third = Run(first.output, ["--site=local", "-n", "no_such_check"])
    assert third.process.wait(timeout=ENDS_S) == 2
    assert "no check has 'no_such_check'" in third.err.read_text()


def _skipped(results) -> set[str]:
    return {row["check"].split(" ")[0] for row in results["skipped"]}
