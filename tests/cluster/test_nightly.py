# SPDX-License-Identifier: MIT
"""``busbar nightly``: the order of its stages, what it makes of them, and what it leaves."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from busbar import data as data_of_busbar
from busbar.check.document import document_of
from busbar.check.surroundings import own
from busbar.cli import main
from busbar.cluster.nightly.night import finished, rotate
from busbar.cluster.nightly.stages import sample_of
from busbar.document import to_json
from busbar.engine.results import Outcome, Result
from busbar.gate.findings import Basis, GateFinding, concluded
from busbar.gate.site import Rule, Rules
from busbar.seal import KEY
from busbar.verdict import Verdict
from tests.cases import cases
from tests.files import executable

NODES = ("n1", "n2", "n3")
# The commands of Slurm, and the stages, print what the files of the test say.
TOOLS = {
    "sinfo": "printf 'n1|idle|none\\nn2|idle|none\\nn3|idle|none\\nn4|drained|bad fan\\n'",
    "scontrol": "exit 1",
    "squeue": "exit 0",
    "scancel": "exit 0",
    "srun": """
for word; do
    case $word in
    --output=*) out=${word#*=} ;;
    "--nodelist=n[1-3]") nodes="n1 n2 n3" ;;
    "--nodelist=n[1-2]") nodes="n1 n2" ;;
    --*) ;;
    *) break ;;
    esac
    shift
done
n=0
for node in $nodes; do
    SLURMD_NODENAME=$node "$@" >"${out%%%t*}$n${out#*%t}" 2>/dev/null
    n=$((n + 1))
done
""",
    "stage": """
echo "$*" >>"$data/calls"
for word; do case $word in --output=*) out=${word#*=} ;; esac; done
case "$1 $*" in
gate*) exec cat "$data/gate-$SLURMD_NODENAME" ;;
sweep*) name=sweep ;;
check*nightly*) name=sample ;;
check*) name=check ;;
report*) mkdir -p "$out"; echo page >"$out/index.html"; echo "text of the report"; exit ;;
esac
. "$data/$name.sh"
mkdir -p "$out"
if [ $name = sweep ]; then cat "$data/sweep"; else cp "$data/$name" "$out/results.json"; fi
read -r status <"$data/$name.status"
exit "$status"
""",
}


@dataclass
class Stages:
    """The recorded stages of a night."""

    data: Path
    output: Path
    printed: pytest.CaptureFixture[str]
    errors: str = ""
    """Standard error of the last night."""

    def gate(self, node: str, verdict: str = "pass", reason: str = "") -> None:
        rules = Rules(checks={"gpu_count": Rule("enforce")} if reason else {})
        value, note = ("3", "") if reason else ("4", verdict)
        finding = GateFinding("gpu_count", Verdict(verdict), "", value, "4", note)
        document = concluded(node, Basis(rules=rules), [finding], at=1e9, seconds=0)
        (self.data / f"gate-{node}").write_text(json.dumps(to_json(document)))

    def sweep(self, verdict: str = "pass", status: int = 0, **keys: object) -> None:
        empty = dict.fromkeys(("accused", "suspects", "gone", "unmeasured"), ())
        document = {"schema": "busbar-sweep-run/1", "verdict": verdict, "nodes": NODES, **empty}
        (self.data / "sweep").write_text(json.dumps(document | keys))
        (self.data / "sweep.status").write_text(f"{status}\n")

    def check(self, name: str, verdict: Verdict = Verdict.PASS, status: int = 0) -> None:
        low = 1.0 if verdict is Verdict.PASS else 1.8
        band = {"gb_per_s": 1.5, "low": low, "high": 2.0}
        row = Result("net", verdict, "n1,n2", metric="bandwidth", bytes=8, **band)
        outcome = Outcome("net", "ucx-1.14", (row,), "gpu", "wheels")
        document = document_of("h20-roce", "ucx-1.14", [outcome])
        (self.data / name).write_text(json.dumps(to_json(document)))
        (self.data / f"{name}.status").write_text(f"{status}\n")

    def before(self, name: str, script: str) -> None:
        """Run a script in a stage before it says anything."""
        (self.data / f"{name}.sh").write_text(script)

    def run(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Return exit status and document of a night."""
        words = ["nightly", "--site", "h20-roce", "--output", str(self.output), "--json", *options]
        status = main(words)
        out, self.errors = self.printed.readouterr()
        return status, json.loads(out)

    @property
    def calls(self) -> list[str]:
        """The stages that ran since the last look: first words and nodes."""
        calls = self.data / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return lines


@pytest.fixture
def stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Stages:
    data = tmp_path / "data"
    data.mkdir()
    for name, script in TOOLS.items():
        executable(data / name, f"data=${{0%/*}}\n{script}")
    monkeypatch.setenv("PATH", f"{data}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(data_of_busbar, "OWN", (str(data / "stage"),))
    healthy = Stages(data, tmp_path / "nights", capfd)
    for node in NODES:
        healthy.gate(node)
    healthy.sweep()
    for name in ("sweep", "check", "sample"):
        healthy.before(name, "")
    healthy.check("check")
    healthy.check("sample")
    return healthy


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {stage["name"]: stage["verdict"] for stage in document["stages"]}


def test_the_stages_run_one_after_the_other_and_end_with_a_report(
    stages: Stages, tmp_path: Path
) -> None:
    """Also after a night that was killed, whose file is still there."""
    stages.output.mkdir()
    (stages.output / ".lock").write_text("999999 on elsewhere")
    more = ("--max-pending", "1h1s", "--reservation", "r", "--sbatch", "--qos=maint")
    stack = ("--lane", "ucx-current", "--delivery", "prefix", "--prefix", "/opt/mpi")
    words = ("--junit", str(tmp_path / "junit.xml"), "--limit", "12.5", *more, *stack)
    status, document = stages.run(*words)
    assert (status, document["verdict"]) == (0, "pass")
    assert document["unusable"] == ["n4 drained (bad fan)"]
    *first, report = stages.calls
    assert [line.split()[0] for line in first] == ["gate"] * 3 + ["sweep", "check", "check"]
    assert all("--nodelist=n[1-3]" in line for line in first[3:5])
    assert all("--max-pending=3601s" in line and "--qos=maint" in line for line in first[3:])
    assert all("--partition=gpu --reservation=r" in line for line in first[3:])
    chosen = "--lane=ucx-current --prefix=/opt/mpi --delivery=prefix"
    assert all(chosen in line for line in first[3:])
    assert ["--limit=12.5" in line for line in first[3:]] == [True, False, False]
    night = Path(document["output"])
    assert f"{night}/check/results.json --sweep={night}/sweep.json" in report
    assert "text of the report" in (night / "summary.txt").read_text()
    root = ET.fromstring((tmp_path / "junit.xml").read_text())  # noqa: S314
    names = ["busbar.h20-roce.nightly", "busbar.h20-roce.check", "busbar.h20-roce.sample"]
    assert [suite.get("name") for suite in root] == names
    assert [suite.get("tests") for suite in root] == ["4", "1", "1"]


LISTED = [
    {"name": f"{name} %size_set={size}", "runs_in": [where], "nodes": nodes}
    for name, size, where, nodes in (
        ("xccl", "quick", "gpu+wheels", 1),
        ("xccl", "nightly", "gpu+wheels", 1),
        ("xccl_nodes", "quick", "gpu+wheels", 2),
        ("memory", "quick", "cpu+wheels", 1),
    )
]


@cases(("slurm", "nodes", "jobs"), [(True, "n[1-3]", 9), (False, "node[1-2]", 5)])
def test_a_plan_runs_nothing(
    stages: Stages, slurm: bool, nodes: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without Slurm. The checks of other partitions are not counted."""
    if not slurm:
        monkeypatch.setenv("PATH", "/nowhere")
    (stages.data / "stage").write_text(f"#!/bin/sh\necho '{json.dumps(LISTED)}'\n")
    status, document = stages.run("--dry-run")
    assert (status, {*verdicts(document).values()}) == (0, {"not run"})
    said = {stage["name"]: stage["message"] for stage in document["stages"]}
    assert said["gate"].startswith(f"1 job: busbar gate on all of {nodes} at once")
    assert said["check"].startswith(f"{jobs} jobs: 2 checks on each of {nodes} and 1 on each of ")
    assert said["sample"].endswith("xccl x 2, xccl_nodes; roughly 40 s")
    assert not stages.output.exists()


def test_the_summary_and_the_report_have_the_records_of_the_nodes(stages: Stages) -> None:
    accused = {"id": "n2", "kind": "node", "evidence": "0.5 GB/s", "nodes": ["n2"]}
    stages.sweep("degraded", 1, accused=[accused | {"confirmed": True}])
    _, document = stages.run()
    nodes = stages.output / "nodes.json"
    text = (Path(document["output"]) / "summary.txt").read_text()
    assert "next: drain; sweep: node n2: 0.5 GB/s" in text
    assert f"--nodes={nodes}" in stages.calls[-1]
    states = {each["node"]: each["state"] for each in json.loads(nodes.read_text())["nodes"]}
    assert states == {"n1": "healthy", "n2": "faulty", "n3": "healthy"}


def test_a_node_that_fails_the_gate_is_left_out_and_the_others_are_tested(stages: Stages) -> None:
    stages.gate("n3", "failed", "[node_problem] \x1b[2J gpu_count 3 vs 4 (busbar)")
    status, document = stages.run()
    assert (status, document["verdict"], document["left_out"]) == (1, "failed", ["n3"])
    assert verdicts(document) | {"gate": ""} == {
        "gate": "",
        "sweep": "pass",
        "check": "pass",
        "sample": "pass",
    }
    assert all("--nodelist=n[1-2]" in line for line in stages.calls if line.startswith("sweep"))
    text = (Path(document["output"]) / "summary.txt").read_text()
    assert "failed the gate, not tested further: n3" in text
    assert "gpu_count 3 vs 4" in text
    assert "\x1b" not in text


def test_what_the_site_only_observes_fails_no_night(stages: Stages) -> None:
    fault = GateFinding("nic_state", Verdict.FAILED, "mlx5_0", "down", "active")
    for mode, verdict in (("observe", "unjudged"), ("enforce", "failed")):
        basis = Basis(rules=Rules(checks={"nic_state": Rule(mode)}))
        found = concluded("n3", basis, [fault], at=1e9, seconds=0)
        (stages.data / "gate-n3").write_text(json.dumps(to_json(found)))
        _, document = stages.run()
        assert verdicts(document)["gate"] == verdict
        assert document["left_out"] == (["n3"] if mode == "enforce" else [])
        assert "nic_state mlx5_0 down" in json.dumps(document)


@cases("text", ["", "{", '{"schema": "busbar-gate/1", "node": "n3"}'])
def test_a_gate_that_does_not_answer_is_not_run_and_accuses_nobody(
    stages: Stages, text: str
) -> None:
    (stages.data / "gate-n3").write_text(text)
    status, document = stages.run("--stages", "gate,sweep")
    assert (status, verdicts(document)) == (2, {"gate": "not run", "sweep": "pass"})
    assert document["left_out"] == []


@cases(
    ("script", "status", "verdict", "words"),
    [
        ("kill -9 $$", 2, "not run", "signal 9"),
        ("echo 'salloc: error: Invalid account' >&2; exit 2", 2, "not run", "Invalid account"),
        ("exit 0", 2, "not run", "exited with status 0"),
        ("echo 7 >$data/sweep.status", 1, "failed", "exited with status 7"),
    ],
)
def test_a_stage_that_breaks_is_no_pass_and_does_not_end_the_night(
    stages: Stages, script: str, status: int, verdict: str, words: str
) -> None:
    stages.before("sweep", script)
    done, document = stages.run()
    found = verdicts(document)
    assert (done, found["sweep"], found["sample"]) == (status, verdict, "pass")
    assert words in document["stages"][1]["message"]
    assert document["report"]


def test_a_night_whose_files_cannot_be_written_keeps_its_verdict(
    stages: Stages, tmp_path: Path
) -> None:
    stages.sweep("degraded", 1, accused=[{"id": "n1", "kind": "node", "evidence": "slow"}])
    status, document = stages.run("--junit", str(tmp_path / "missing" / "junit.xml"))
    assert (status, document["verdict"]) == (1, "degraded")
    assert document["stages"][1]["findings"][0]["where"] == "n1"
    assert "junit.xml: cannot be written: No such file or directory" in stages.errors


def test_a_sweep_without_an_accused_node_says_why_it_does_not_pass(stages: Stages) -> None:
    open_ends = {"unsteady": ["n2"], "suspects": [{"a": "n1", "b": "n3"}]}
    stages.sweep("unknown", 1, **open_ends)
    (stage,) = stages.run("--stages", "sweep")[1]["stages"]
    assert stage["message"] == "3 nodes, 0 accused; n2: slow at times and 1 more"
    assert [each["where"] for each in stage["findings"]] == ["n2", "n1-n3"]
    stages.sweep("failed", 1, wrong_data=["n1-n2"], **open_ends)
    (stage,) = stages.run("--stages", "sweep")[1]["stages"]
    assert stage["message"] == "3 nodes, 0 accused; n1-n2: wrong data and 2 more"


def test_the_worst_verdict_counts(stages: Stages) -> None:
    stages.sweep("unjudged", 3)
    status, document = stages.run("--stages", "sweep")
    assert (status, document["verdict"]) == (3, "unjudged")
    summary = Path(document["output"], "summary.txt").read_text()
    assert document["report"]
    assert "text of the report" not in summary
    stages.check("check", Verdict.DEGRADED, 1)
    stages.check("sample", Verdict.PASS, 1)
    status, document = stages.run()
    assert (status, document["verdict"]) == (1, "failed")
    assert verdicts(document)["check"] == "degraded"
    assert verdicts(document)["sample"] == "failed"


def test_max_hours_ends_a_stage_and_a_resumed_night_repeats_only_what_is_left(
    stages: Stages,
) -> None:
    stages.before("sweep", "exec sleep 20")
    status, document = stages.run("--max-hours", "0.0002", "--sample", "0")
    messages = [stage["message"] for stage in document["stages"]]
    assert (status, document["verdict"]) == (2, "not run")
    assert "--max-hours" in messages[1]
    assert messages[2] == "--max-hours was reached"
    assert document["stages"][0]["finished"]
    assert stages.calls
    stages.before("sweep", "")
    status, again = stages.run("--resume", "--sample", "0")
    assert (status, again["output"]) == (0, document["output"])
    assert [line.split()[0] for line in stages.calls] == ["sweep", "check", "report"]
    assert stages.run("--resume", "--sample", "0")[0] == 0
    assert [line.split()[0] for line in stages.calls] == ["report"]


def test_a_signal_ends_the_stage_and_the_night_can_be_resumed(stages: Stages) -> None:
    stages.before("sweep", "kill -TERM $PPID; exec sleep 20")
    status, document = stages.run()
    assert (status, document["interrupted"], document["verdict"]) == (143, "SIGTERM", "not run")
    assert list(verdicts(document)) == ["gate", "sweep"]
    assert finished(stages.output) == []
    stages.before("sweep", "")
    assert stages.run("--resume")[0] == 0
    assert len(finished(stages.output)) == 1


def test_the_results_of_another_day_are_not_resumed(stages: Stages) -> None:
    _, document = stages.run("--stages", "sweep")
    state = Path(document["output"]) / "night.json"
    old = json.loads(state.read_text()) | {"begun": "2026-01-01T02:00:00+00:00"}
    state.write_text(json.dumps(old))
    assert stages.run("--resume")[0] == 2
    assert "was changed after it was written" in stages.errors
    state.write_text(json.dumps({key: value for key, value in old.items() if key != KEY}))
    assert stages.run("--resume")[0] == 2
    assert "more than a day ago" in stages.errors
    state.write_text("{")
    assert stages.run("--resume")[0] == 2
    assert "not the state of a night" in stages.errors


def test_a_second_start_is_refused(stages: Stages) -> None:
    stages.output.mkdir()
    with own(stages.output):
        status, document = stages.run()
    lines = stages.errors.splitlines()
    assert (status, len(lines)) == (2, 1)
    assert f"(process {os.getpid()} on " in lines[0]
    assert document["schema"] == "busbar-error/1"
    assert stages.calls == []


def test_only_the_oldest_finished_nights_are_removed(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        stages.run("--stages", "sweep")
    first, second, third = (night.directory for night, _ in finished(stages.output))
    others = [stages.output / name for name in ("2020-01-01T0200Z", "mine", "2020-01-02T0200Z")]
    others[0].mkdir()  # a night that has not finished
    others[1].mkdir()
    others[2].symlink_to(first)
    monkeypatch.setenv("BUSBAR_HISTORY", str(second / "history"))
    (problem,) = rotate(stages.output, 1)
    assert "the history is in it" in problem
    left = {path for path in stages.output.iterdir() if path.name not in (".lock", "nodes.json")}
    assert left == {second, third, *others}


def test_the_sample_takes_other_nodes_each_day_until_all_had_their_turn() -> None:
    nodes = [f"n{number}" for number in range(5)]
    days = [sample_of(nodes, 2, date(2026, 11, day)) for day in range(1, 6)]
    assert {node for sample in days[:3] for node in sample} == set(nodes)
    assert all(len(set(sample)) == 2 for sample in days)
    assert sample_of(nodes, 9, date(2026, 11, 1)) != ()
    assert set(sample_of(nodes, 9, date(2026, 11, 1))) == set(nodes)


@cases(
    ("options", "words"),
    [
        (["--stages", "gate,gates"], "'gates' is not a stage"),
        (["--stages", ""], "'' is not a stage"),
        (["--max-hours", "0"], "must be a number above 0"),
        (["--keep", "0"], "must be a positive integer"),
        (["--resume"], "no night to resume"),
        (["--site", "local"], "has no Slurm"),
        (["--partition", "cpu"], "no partition 'cpu'; known: gpu"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    stages: Stages, options: list[str], words: str
) -> None:
    try:
        status, _ = stages.run(*options)
    except SystemExit as error:
        status = int(str(error))
        stages.errors = stages.printed.readouterr().err
    assert status == 2
    assert words in stages.errors.splitlines()[-1]
    assert stages.calls == []
