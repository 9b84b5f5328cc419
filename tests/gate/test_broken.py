# SPDX-License-Identifier: MIT
"""A broken gate drains nobody: whatever fails, the exit status is 0 and no node is drained."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from busbar import cli
from busbar.gate import run as run_module
from busbar.gate.run import GateOptions, run
from busbar.verdict import Verdict
from tests.cases import some

from .node import Node
from .test_copies import measured, of
from .without_gpus import WithoutGpus

Change = Callable[[Node, pytest.MonkeyPatch], object]


def _hang(*_: object) -> NoReturn:
    time.sleep(600)
    raise AssertionError


def _fail(*_: object) -> NoReturn:
    raise ZeroDivisionError("a bug")


def _die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _directory(node: Node, name: str) -> None:
    path = node.root / name
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)


def _mount_fails(node: Node, patch: pytest.MonkeyPatch, number: int) -> None:
    def fail(_: str) -> NoReturn:
        raise OSError(number, os.strerror(number))

    node.site("    mount: {mode: enforce}\n  mounts: [{path: /scratch}]\n")
    patch.setattr(os, "statvfs", fail)


BROKEN: dict[str, Change] = {
    "nvidia-smi hangs": lambda node, patch: (
        node.smi(script="sleep 600"),
        patch.setattr(run_module, "_MOST_TOOL_S", 0.5),
    ),
    "nvidia-smi fails": lambda node, _: node.smi(script="echo 'No devices' >&2; exit 9"),
    "nvidia-smi finds no GPU": lambda node, _: node.smi(
        script="echo No devices were found; exit 6"
    ),
    "nvidia-smi finds no driver": lambda node, _: node.smi(
        script="echo 'has failed because it could not communicate with the driver'; exit 9"
    ),
    "nvidia-smi has no handle": lambda node, _: node.smi(
        script="echo 'Unable to determine the device handle for GPU0: Unknown Error'; exit 255"
    ),
    "nvidia-smi lacks a library": lambda node, _: node.smi(
        script="echo 'error while loading shared libraries: libnvidia-ml.so.1' >&2; exit 127"
    ),
    "a mount is stale": lambda node, patch: _mount_fails(node, patch, errno.ESTALE),
    "a mount has lost its disk": lambda node, patch: _mount_fails(node, patch, errno.EIO),
    "a mount has lost its server": lambda node, patch: _mount_fails(node, patch, errno.ENOTCONN),
    "a mount is of another user": lambda node, patch: _mount_fails(node, patch, errno.EACCES),
    "nvidia-smi prints nothing": lambda node, _: node.smi(script="exit 0"),
    "nvidia-smi prints something else": lambda node, _: node.smi(script="echo hello"),
    "nvidia-smi prints half a report": lambda node, _: node.smi("<nvidia_smi_log><gpu>"),
    "nvidia-smi crashes": lambda node, _: node.smi(script="kill -SEGV $$"),
    "nvidia-smi is not a program": lambda node, _: node.write("bin/nvidia-smi", "\x7fELF"),
    "nvidia-smi floods": lambda node, _: node.smi(script="yes | head -c 20000000"),
    "nvidia-smi is missing": lambda node, patch: (
        (node.root / "bin/nvidia-smi").unlink(),
        patch.setenv("PATH", "/nonexistent"),
    ),
    "the links are not listed": lambda node, _: node.smi(links="Unable to retrieve"),
    "the kernel log is unreadable": lambda node, _: (
        _directory(node, "dev/kmsg"),
        node.program("dmesg", "exit 1"),
    ),
    "sysfs is empty": lambda node, _: (node.root / "sys").rename(node.root / "not-sys"),
    "sysfs hangs": lambda _, patch: (
        patch.setattr("busbar.gate.sysfs.read", _hang),
        patch.setattr(run_module, "_MOST_TOOL_S", 0.5),
    ),
    "the driver crashes the reader": lambda _, patch: patch.setattr(
        "busbar.gate.sysfs.read", _die
    ),
    "the site is missing": lambda node, _: (node.root / "here/site.yaml").unlink(),
    "the site is invalid": lambda node, _: node.write("here/site.yaml", "name: [\n"),
    "the site has a wrong key": lambda node, _: node.site("    nic_stat: {mode: enforce}\n"),
    "the site is unreadable": lambda node, _: _directory(node, "here/site.yaml"),
    "the family is missing": lambda node, _: node.write(
        "here/site.yaml",
        (node.root / "here/site.yaml").read_text().replace("nvlink4\nsch", "nowhere\nsch"),
    ),
    "a rule has a bug": lambda _, patch: patch.setattr("busbar.gate.run.judge_state", _fail),
    "a rule hangs": lambda _, patch: patch.setattr("busbar.gate.run.judge_ports", _hang),
    "the gate crashes": lambda _, patch: patch.setattr("busbar.gate.run.judge_state", _die),
    "a mount hangs": lambda node, patch: (
        node.site("    mount: {mode: enforce}\n  mounts: [{path: /scratch}]\n"),
        patch.setattr(os, "statvfs", _hang),
        patch.setattr("busbar.gate.passive._MOUNT_S", 0.5),
    ),
    "the node types differ": lambda node, _: node.write(
        "here/site.yaml",
        (node.root / "here/site.yaml")
        .read_text()
        .replace("node_type: node}", "node_type: node}\n  - {name: cpu, node_type: other}")
        .replace("node_types:\n", "node_types:\n  other: {cores: 512}\n"),
    ),
}


def in_children(names: Iterable[str]) -> list[Any]:
    """Mark the cases that need processes of their own; the others take ``in_process``."""
    own = re.compile("hang|crash|flood")
    return [
        pytest.param(name, marks=[pytest.mark.run] if own.search(name) else []) for name in names
    ]


@pytest.mark.parametrize("name", in_children(some(BROKEN, 2)))
def test_a_broken_gate_drains_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch, in_process: None, name: str
) -> None:
    BROKEN[name](node, monkeypatch)
    result = run(node.options(deadline_s=3.0))
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, "")


@pytest.mark.run
@pytest.mark.parametrize("fault", ["hang", "crash"])
def test_a_driver_that_hangs_or_crashes_is_unknown(
    node: Node, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(run_module, "_MOST_COPY_S", 3.0)
    result = measured(node, monkeypatch, WithoutGpus(fault=fault))
    verdicts = of(result, "host_copy", "peer_copy")
    good = {"host->gpu0", "gpu0->host"}
    assert {place for place, verdict in verdicts.items() if verdict == "pass"} == good
    assert set(verdicts.values()) == {"pass", "unknown"}
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, "")


@pytest.mark.run
def test_what_is_certain_before_the_deadline_counts(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write("sys/devices/system/cpu/online", "0\n")
    monkeypatch.setattr("busbar.gate.run.judge_ports", _hang)
    result = run(node.options(deadline_s=5.0))
    assert result.problems == ("did not answer in 4 s",)
    assert result.reason.startswith("[node_problem] cpu_count 1 vs 4 or more")


@pytest.mark.run
def test_nothing_is_left_of_a_gate_that_is_killed(node: Node) -> None:
    """Slurm kills a HealthCheckProgram; what it has started must not stay."""
    node.smi(script=f"echo $$ > {node.root}/pid; exec sleep 600")
    code = (
        "from tests.gate.node import Node; from pathlib import Path;"
        f"from busbar.gate.run import run; run(Node(Path({str(node.root)!r})).options())"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    pid = node.root / "pid"
    end = time.monotonic() + 240
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < end:
        time.sleep(0.02)
    process.kill()
    process.wait()
    child = Path("/proc", pid.read_text().strip(), "stat")
    while _runs(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not _runs(child)


def _runs(stat: Path) -> bool:
    try:
        return ") Z " not in stat.read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    "words",
    [
        ["--bogus"],
        ["--deadline", "0"],
        ["--deadline", "nan"],
        ["--deadline", "soon"],
        ["--nodeverdict"],
        ["surplus"],
    ],
)
@pytest.mark.parametrize(("context", "status"), [("", 2), ("prolog_slurmd", 0)])
def test_a_wrong_option_drains_nobody(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    context: str,
    status: int,
) -> None:
    monkeypatch.setenv("SLURM_SCRIPT_CONTEXT", context)
    with pytest.raises(SystemExit) as end:
        cli.main(["gate", *words])
    assert end.value.code == status
    assert "error: " in capsys.readouterr().err


def test_a_bug_of_the_command_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("busbar.gate.command.run", _fail)
    assert cli.main(["gate"]) == 0
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err


def test_metrics_that_cannot_be_written_are_no_fault(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_node(options: GateOptions) -> object:
        return run(node.options(options.slurm))

    monkeypatch.setattr("busbar.gate.command.run", of_node)
    assert cli.main(["gate", "--json", "--prometheus", "/proc/nowhere/a.prom"]) == 0
    captured = capsys.readouterr()
    assert "/proc/nowhere/a.prom: cannot be written" in captured.err
    assert json.loads(captured.out)["verdict"] == "pass"
