# SPDX-License-Identifier: MIT
"""The scripts of `ci/slurm`: a mistake in gate.conf drains no node, and is logged; its checks."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.cases import cases
from tests.files import executable
from tests.said import ran

HOOKS = Path(__file__).resolve().parents[2] / "ci/slurm"
CONF = """\
# a comment
BUSBAR={bin}/busbar
GATE_OPTIONS="--site alpha"
GATE_SECONDS=9
GATE_SBATCH=
export PATH={bin}:/usr/bin:/bin
"""
PASS = "n1: pass, 3 of 3 checks pass, state only, site alpha, 0.1 s"
LINE = f'echo "{PASS}"'
MISTAKES: dict[str, tuple[tuple[str, str], str, str]] = {
    "none": (("", ""), LINE, ""),
    "another form of the gate": (("GATE_SBATCH=", 'GATE="busbar itself"'), LINE, ""),
    "no Busbar, but the compiled gate": (*(("BUSBAR=", "GATE="), LINE, ""),),
    "a misspelt key": (("GATE_OPTIONS", "GATE_OPTION"), LINE, "gate.conf:3:GATE_OPTION="),
    "words beside the settings": (("# a", "a"), LINE, "gate.conf:1:a comment: is not a setting"),
    "blanks around =": (("BUSBAR=", "BUSBAR ="), LINE, "gate.conf:2:BUSBAR ="),
    "a quote is missing": (('alpha"', "alpha"), LINE, "gate.conf: "),
    "a key is missing": (("GATE_SECONDS=9\n", ""), LINE, "GATE_SECONDS is missing"),
    "not a number": (("SECONDS=9", "SECONDS=soon"), LINE, "is not a number of seconds"),
    "another program": (("/busbar\n", "/busbra\n"), LINE, "status 127 and no verdict of: "),
    "a wrong option": (("alpha", "-alpha"), "echo usage >&2; exit 2", "status 2 and no verdict"),
    "a wrong option in a prolog": (("", ""), "echo usage >&2", "status 0 and no verdict of: "),
    "no Python": (("", ""), "echo Traceback; exit 1", "status 1 and no verdict of: "),
    "a node without rest": (
        ("", ""),
        f'[ "$(nice)" -lt 0 ] || nice -n -1 true 2>&1 | grep -q nice && {LINE}',
        "",
    ),
    "no such site": (("", ""), f"echo not complete: no site; {LINE}", "complete: no site"),
}


def run_hook(directory: Path, change: tuple[str, str], script: str) -> tuple[int, str, str, str]:
    """Status, output, errors and log of the prolog with a changed gate.conf."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(HOOKS, directory)
    programs = directory / "bin"
    programs.mkdir()
    log = directory / "log"
    for name, body in (("busbar", script), ("logger", f'echo "$*" >>{log}')):
        executable(programs / name, body)
    conf = CONF.format(bin=programs)
    assert change[0] in conf
    (directory / "gate.conf").write_text(conf.replace(*change, 1))
    done = ran(directory / "prolog.d/busbar", env={"PATH": f"{programs}:/usr/bin:/bin"})
    logged = log.read_text() if log.exists() else ""
    return done.returncode, done.stdout, done.stderr, logged


def test_a_mistake_in_the_settings_is_one_clear_error(tmp_path: Path) -> None:
    wrong = []
    for name, (change, script, words) in MISTAKES.items():
        status, printed, errors, logged = run_hook(tmp_path / "hooks", change, script)
        told = words in logged and words in errors
        if status or not (told if words else PASS in printed and not errors + logged):
            wrong.append((name, status, printed, errors, logged))
    assert wrong == []


def test_a_gate_that_no_signal_ends_delays_a_prolog_by_its_deadline(tmp_path: Path) -> None:
    hangs = "trap '' TERM; (setsid sleep 30) & echo $! >pid; wait"  # it keeps the output open
    change = ("GATE_SECONDS=9", "GATE_SECONDS=1")
    began = time.monotonic()
    status, _, errors, _ = run_hook(tmp_path / "hooks", change, f"cd {tmp_path}; {hangs}")
    assert (status, time.monotonic() - began < 15) == (0, True)
    assert "status 137 and no verdict of: " in errors


def test_a_reason_drains_and_is_logged(tmp_path: Path) -> None:
    script = "echo drain: [node_problem] bad; exit 1"
    status, _, _, logged = run_hook(tmp_path / "hooks", ("", ""), script)
    assert (status, logged) == (1, "-t busbar-gate -p daemon.notice -- [node_problem] bad\n")


MEMORY = "MemTotal: {} kB\nMemAvailable: 9 kB\nHardwareCorrupted: {} kB\n"
PS = "printf '1001 999 D a\n1001 999 D a\n0 999 S b\n1002 9 S c\n1002 999 Z d\n'"
CHECKS: tuple[tuple[str, str, str, tuple[int, str]], ...] = (
    ("memory 500", "", MEMORY.format(600 << 20, 0), (0, "600 GiB, 0 KiB corrupted")),
    ("memory 500", "", MEMORY.format(400 << 20, 0), (2, "400 GiB, 0 KiB corrupted")),
    ("memory 500", "", MEMORY.format(600 << 20, 8), (2, "600 GiB, 8 KiB corrupted")),
    ("service munge sshd", "systemctl", "echo active", (0, "active")),
    ("service munge sshd", "systemctl", "echo failed; exit 3", (2, "munge is failed")),
    ("service munge", "systemctl", "exit 1", (3, "")),
    ("leftover", "ps", PS, (2, "2 a of user 1001")),
    ("leftover", "ps", "true", (0, "none")),
    ("leftover", "pgrep", "true", (0, "a job runs")),
    ("clock", "python3", "echo not synchronized; exit 2", (2, "not synchronized")),
)


@cases(("words", "program", "script", "ended"), CHECKS)
def test_the_commands_that_come_with_the_hooks(
    tmp_path: Path, words: str, program: str, script: str, ended: tuple[int, str]
) -> None:
    for name in {"pgrep", program} - {""}:
        executable(tmp_path / name, script if name == program else "exit 1")
    (tmp_path / "meminfo").write_text(script)
    name, *more = words.split()
    own = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MEMINFO": str(tmp_path / "meminfo")}
    done = ran(HOOKS / "checks" / name, *more, env=own)
    assert (done.returncode, done.stdout.strip()) == ended


@cases(("status", "printed"), [(0, ""), (3, ""), (1, "n3 is slow\n"), (2, "n3 is slow\n")])
def test_a_night_prints_its_summary_only_after_a_fault(
    tmp_path: Path, status: int, printed: str
) -> None:
    called = tmp_path / "called"
    body = f'echo "$*" >>{called}; [ $1 = nightly ] || exit 1; echo n3 is slow; exit {status}'
    executable(tmp_path / "busbar", body)
    places = {"BUSBAR": f"{tmp_path}/busbar", "OUTPUT": f"{tmp_path}", "METRICS": "/m"}
    done = ran(HOOKS / "night", "--site", "alpha", env=os.environ | places)
    assert (done.returncode, done.stdout, done.stderr) == (status % 3, printed, "")
    nightly, report, node = called.read_text().splitlines()
    assert nightly == f"nightly --site alpha --output {tmp_path}"
    assert "--prometheus /m/busbar.prom" in report
    assert "--prometheus /m/busbar_nodes.prom" in node
