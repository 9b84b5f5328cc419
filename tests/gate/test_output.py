# SPDX-License-Identifier: MIT
"""What the gate prints, the reason of a drain, and who may be resumed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from busbar.errors import BusbarError
from busbar.gate.findings import (
    CHECKS,
    MOST_BYTES,
    Basis,
    GateDocument,
    GateFinding,
    GateRow,
    concluded,
    own_check,
    reason_of,
    ruled,
)
from busbar.gate.output import show, write_metrics
from busbar.gate.site import Rule, Rules
from busbar.gate.slurm import SlurmContext, drain_node, from_environment, resume_node
from busbar.site.load import load
from busbar.terminal import stdout
from busbar.verdict import Verdict
from tests.cases import cases
from tests.files import executable

from .node import SITE, Node

DOWN = GateFinding("nic_state", Verdict.FAILED, "mlx5_0", "down", "active")
UP = GateFinding("nic_state", Verdict.PASS, "mlx5_0", "active", "active")
ENFORCED = Rules(checks={name: Rule("enforce") for name in CHECKS})


def result(*findings: GateFinding, rules: Rules = ENFORCED) -> GateDocument:
    """A result of these findings."""
    return concluded("n1", Basis("alpha", "", rules), findings, at=1.7e9, seconds=1.5)


def enforced(finding: GateFinding) -> GateRow:
    """A finding that drains."""
    row = ruled(finding, ENFORCED)
    assert row
    return replace(row, severity="critical", mode="enforce", drains=True)


@cases("value", ["x" * 900, "ä\n\x1b[31m\"'`$(reboot)\\|", "a: b vs c"])
@cases("check", CHECKS)
def test_every_reason_fits_into_slurm_and_is_recognised(check: str, value: str) -> None:
    fault = enforced(GateFinding(check, Verdict.FAILED, "/a b", value[:200], "1", remedy=value))
    reason = reason_of([fault, fault])
    assert len(reason.encode()) <= MOST_BYTES
    assert reason.isascii()
    assert reason.isprintable()
    assert not set("\"'`$\\|;\n") & set(reason.replace(";", ""))
    assert own_check(reason) == check
    assert f"{check} /a b" in reason


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "Prolog error",
        "bad fan",
        "[node_problem] gpu_xid",
        "[node_problem] nic_state down vs active: reseat",  # of another tool
        "[node_problem] nic_stat mlx5_0 down vs active: reseat (busbar)",
        "see [node_problem] nic_state mlx5_0 down vs active: reseat (busbar)",
        "[node_problem] nic_state mlx5_0 down vs active: reseat (busbar); ticket 12",
    ],
)
def test_the_reasons_of_others_are_not_ours(reason: str) -> None:
    assert own_check(reason) is None


def test_the_gravest_fault_is_named_first() -> None:
    ecc = GateFinding("gpu_ecc", Verdict.FAILED, "gpu0", "3 errors", "0")
    reason = reason_of([enforced(ecc), enforced(DOWN)])
    expected = "nic_state mlx5_0 down vs active: check cable and switch (+1 more) (busbar)"
    assert reason == f"[node_problem] {expected}"


@pytest.mark.parametrize(
    ("rule", "drains"),
    [
        (Rule(), False),
        (Rule(mode="enforce"), True),
        (Rule(mode="enforce", severity="warning"), False),
        (Rule(mode="enforce", action="note"), False),
        (Rule(mode="enforce", action="reboot"), True),
    ],
)
def test_the_site_decides_what_a_fault_does(rule: Rule, drains: bool) -> None:
    assert bool(result(DOWN, rules=Rules(checks={"nic_state": rule})).reason) == drains


@cases(
    ("key", "words"),
    [
        ("checks: {pcie_link: {mode: enforce}}", "site.yaml:20: gate: checks.pcie_link cannot be"),
        ("checks: {mount: {mode: enforce}}", "but mounts lists no file system"),
        ("checks: {driver_version: {mode: enforce}}", "but driver is not set"),
        ("checks: {nic_stat: {}}", "site.yaml:21: gate.checks.nic_stat: must be"),
        ("checks: {mount: {mode: off}}", "site.yaml:21: gate.checks.mount.mode: must be 'skip'"),
        ("mounts: [{path: scratch}]", "gate.mounts[0].path: must be an absolute path"),
        ("xid_hours: 0", "gate.xid_hours: "),
        ('driver: "570-1"', "gate.driver: must match"),
        ("cheks: {}", "gate.cheks: "),
    ],
)
def test_a_wrong_key_is_an_error_with_its_line(node: Node, key: str, words: str) -> None:
    node.write("here/site.yaml", SITE.format(gate=f"  {key}"))
    with pytest.raises(BusbarError) as error:
        load(str(node.root / "here"))
    assert words in str(error.value)


def test_the_text_ends_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    show(result(DOWN, GateFinding("gpu_ecc", Verdict.UNKNOWN, note="\x1b[31mred")), stdout())
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("drain: [node_problem] nic_state mlx5_0 down")
    assert lines[-2] == "0 of 2 checks pass, state and copies, site alpha, 1.5 s"
    assert lines[0] == "failed: n1: nic_state mlx5_0 is down, not active"
    assert "\x1b" not in "".join(lines)
    show(replace(result(DOWN), drain=False), stdout())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("; a dry run drains nothing")
    assert lines[-1].startswith("would drain: [node_problem] nic_state")
    show(result(DOWN, rules=Rules()), stdout())
    assert "; the site only observes this: the node stays in service\n" in capsys.readouterr().out


def test_what_drains_comes_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An observed fault is not what the node is repaired for, even if its repair takes more."""
    cpus = GateFinding("cpu_count", Verdict.FAILED, "", "4", "8 or more")
    rules = Rules(checks={"nic_state": Rule("enforce")})
    for program, called in [
        ("busbar", "busbar gate --site alpha"),
        ("/e a.pyz", "python3 -I '/e a.pyz'"),
    ]:
        monkeypatch.setattr("sys.argv", [program])
        show(result(cpus, DOWN, rules=rules), stdout())
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("failed: n1: nic_state mlx5_0 is down, not active; cpu_count")
        assert [line.split()[1] for line in lines[2:4]] == ["nic_state", "cpu_count"], lines
        assert f"next: nic_state mlx5_0: check cable and switch; then run {called} again" in lines


def test_the_json_document_names_each_check() -> None:
    printed = result(DOWN, UP)
    assert (printed.verdict, printed.drain) == ("failed", True)
    assert [row.drains for row in printed.checks] == [True, False]


def test_metrics_are_what_prometheus_reads(tmp_path: Path) -> None:
    copy = GateFinding("host_copy", Verdict.PASS, 'gpu"0\\\n', gb_per_s=55.0)
    path = tmp_path / "busbar.prom"
    write_metrics(result(DOWN, copy), path)
    families = {each.name: each for each in text_string_to_metric_families(path.read_text())}
    drain, *_ = families["busbar_gate_drain"].samples
    assert drain.value == 1
    (rate,) = families["busbar_gate_copy_bytes_per_second"].samples
    assert (rate.labels["where"], rate.value) == ('gpu"0\\\n', 55e9)
    assert os.listdir(tmp_path) == ["busbar.prom"]  # no half of a file is left


class Tools:
    """Stand-ins for sinfo and scontrol, which write down how they were called."""

    def __init__(self, directory: Path, state: str, status: int = 0) -> None:
        self.called = directory / "called"
        self.called.write_text("")
        for name, body in (("sinfo", f"printf '%s\\n' '{state}'"), ("scontrol", f"exit {status}")):
            executable(directory / name, f'echo {name} "$@" >>{self.called}\n{body}')

    @property
    def updates(self) -> list[str]:
        return [line for line in self.called.read_text().splitlines() if "scontrol" in line]


OWN = "[node_problem] nic_state mlx5_0 down vs active: check cable and switch (busbar)"
AGAIN = "scontrol update NodeName=n1 State=RESUME"


@pytest.mark.parametrize(
    ("state", "findings", "text"),
    [
        (f"drained|{OWN}", [UP], "resumed n1"),
        (f"draining|{OWN}", [UP], "resumed n1"),
        (f"drained*|{OWN}", [UP], "resumed n1"),
        (f"drained|{OWN}", [DOWN], "n1 stays drained: [node_problem] nic_state"),
        (
            f"drained|{OWN}",
            [replace(UP, verdict=Verdict.UNJUDGED, note="lost")],
            "n1 stays drained: nic_state is not known to be healthy: lost",
        ),
        (f"drained|{OWN}", [], "n1 stays drained: nic_state was not checked"),
        (f"drained|{OWN}", [GateFinding("nic_state", Verdict.UNKNOWN)], "not known to be healthy"),
        ("drained|bad fan", [UP], "the gate did not drain it (bad fan)"),
        ("drained|Prolog error", [UP], "the gate did not drain it (Prolog error)"),
        (f"down|{OWN}", [UP], "n1 is in service"),
        ("idle|none", [UP], "n1 is in service"),
        ("", [UP], "cannot recheck n1"),
    ],
)
def test_only_what_the_gate_drained_is_resumed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    findings: list[GateFinding],
    text: str,
) -> None:
    tools = Tools(tmp_path, state)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert text in resume_node(result(*findings), SlurmContext("n1"))
    assert tools.updates == ([AGAIN] if text == "resumed n1" else [])


@pytest.mark.parametrize(
    ("state", "healthy", "drained"),
    [
        ("idle|none", None, True),
        ("allocated|none", True, True),
        ("drained|bad fan", None, False),
        ("idle|none", False, False),
        ("", None, False),
    ],
)
def test_a_node_is_drained_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    healthy: bool | None,
    drained: bool,
) -> None:
    tools = Tools(tmp_path, state)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    drain_node(result(DOWN), SlurmContext("n1", healthy=healthy))
    expected = [f"scontrol update NodeName=n1 State=DRAIN Reason={OWN}"] if drained else []
    assert tools.updates == expected


def test_the_variables_of_slurm_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "SLURMD_NODENAME": "n7",
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_GPUS": "0,3,x",
        "SLURM_SCRIPT_CONTEXT": "epilog_slurmd",
        "SLURM_NODE_IS_HEALTHY": "no",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    slurm = from_environment()
    assert (slurm.node, slurm.job, slurm.gpus, slurm.healthy) == ("n7", "12", (0, 3), False)
    assert (slurm.in_prolog, slurm.in_job) == (True, False)


def test_metrics_stay_in_a_directory_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that others made with the name of the file are replaced, not followed."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    mine, foreign, public = (tmp_path / name for name in ("mine", "foreign", "public"))
    for directory in (mine, foreign, public):
        directory.mkdir()
    path = mine / "busbar.prom"
    for link in (path.symlink_to, path.hardlink_to):
        link(victim)
        write_metrics(result(DOWN), path)
        assert (victim.read_text(), path.is_symlink()) == ("mine", False)
        assert (path.stat().st_nlink, path.stat().st_mode & 0o777) == (1, 0o644)
        path.unlink()
    public.chmod(0o777)
    with pytest.raises(BusbarError, match="anyone can write to"):
        write_metrics(result(DOWN), public / "busbar.prom")
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: 99999)
    else:
        os.chown(foreign, 65534, -1)
    with pytest.raises(BusbarError, match=r"owns \S+, and could redirect"):
        write_metrics(result(DOWN), foreign / "busbar.prom")
    assert [*foreign.iterdir(), *public.iterdir()] == []
