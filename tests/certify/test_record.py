# SPDX-License-Identifier: MIT
"""What the runs of a contract say of its clauses, and what is repeated after a repair."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.certify.contract import Clause, Contract
from busbar.certify.execute import Executor
from busbar.certify.plan import Work
from busbar.certify.record import Acceptance, begin
from busbar.check.processes import Interruption
from busbar.cluster.nightly.process import Ended
from busbar.errors import BusbarError
from tests.said import Command

from .records import CLAUSES, FakeFleet

XID = "n1: gate: [node_problem] gpu_xid Xid 79 vs none: reset the GPU (busbar)"


def states(found: Acceptance) -> list[str]:
    return [each.state for each in found.clauses]


def runs(fleet: FakeFleet) -> list[tuple[str, tuple[str, ...]]]:
    files = sorted((fleet.record / "runs").glob("*/run.json"))
    documents = [json.loads(file.read_text()) for file in files]
    return [(each["kind"], tuple(each["nodes"])) for each in documents]


def test_a_healthy_fleet_is_accepted(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path)
    found = fleet.certify()
    assert states(found) == ["met"] * 4
    assert found.verdict == "accepted"
    assert found.sentence == "accepted: fleet meets all 4 clauses"
    worst = found.clauses[2]
    assert (worst.where, worst.measured, worst.promised, worst.limit) == ("n0", 24.0, 20.0, 25.0)
    assert (worst.least, worst.most, worst.readings, worst.nodes) == (24.0, 24.3, 4, 4)
    assert [kind for kind, _ in runs(fleet)] == ["begun", "gate", "sweep", "sweep", "check"]
    page = (fleet.record / "index.html").read_text()
    assert "accepted: fleet meets all 4 clauses" in page
    assert "no guarantee" in page


@pytest.mark.parametrize(
    ("fault", "value", "clause", "why"),
    [
        ("slow", {"n2"}, 2, "n2: 0->1 12 GB/s, below 20 GB/s"),
        ("failing", {"n1"}, 0, XID),
        ("accused", {"n3"}, 1, "n3: sweep: 0.1 GB/s"),
        ("accused", {"leaf1"}, 1, "leaf1: sweep: 0.1 GB/s"),
        ("drivers", {"n0": "535"}, 3, "driver is 535 on n0, not 550"),
    ],
)
def test_a_fault_is_named_and_its_repair_granted(
    tmp_path: Path, fault: str, value: object, clause: int, why: str
) -> None:
    fleet = FakeFleet(tmp_path)
    setattr(fleet, fault, value)
    found = fleet.certify()
    assert found.verdict == "not accepted"
    assert found.clauses[clause].state == "not met"
    assert found.clauses[clause].why == why
    before = runs(fleet)
    assert fleet.certify().clauses == found.clauses, "nothing is left to run"
    assert runs(fleet) == before

    setattr(fleet, fault, type(value)())
    repaired = ("n0", "n1", "n2", "n3") if value == {"leaf1"} else (*value,)
    again = fleet.certify(*repaired)
    assert again.verdict == "accepted", again.sentence
    if fault != "drivers":
        assert [event.node for event in again.account] == [*value]
        assert all(event.passed and event.repaired for event in again.account)
    if len(repaired) == 1:
        later = runs(fleet)[len(before) + 1 :]
        assert {nodes for kind, nodes in later if kind != "sweep"} == {repaired}
        swept = [nodes for kind, nodes in later if kind == "sweep"]
        assert len(swept) == 2
        assert all(set(repaired) < set(nodes) for nodes in swept)


def test_a_node_that_is_not_repaired_is_refused_again(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, slow={"n2"})
    fleet.certify()
    found = fleet.certify("n2")
    assert found.clauses[2].state == "not met"
    assert [event.repaired != "" for event in found.account] == [True, False]


def test_what_was_not_measured_is_not_met(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path, missing=("n9 down (no answer)",))
    found = fleet.certify()
    assert states(found) == ["not measured"] * 4
    assert found.clauses[0].why == "not tested: n9 down (no answer)"
    assert "n9 down" in (fleet.record / "index.html").read_text()
    assert fleet.certify("n9").verdict == "accepted"


def test_a_size_without_a_reading_is_not_measured(tmp_path: Path) -> None:
    found = FakeFleet(tmp_path, clauses=CLAUSES.replace("4 MiB", "8 MiB")).certify()
    assert (found.clauses[2].state, found.clauses[2].why) == (
        "not measured",
        "no reading has 8 MiB; it measured 4 MiB",
    )


@pytest.mark.parametrize(
    ("figures", "state"),
    [
        ("", "not measured"),
        ("    at_least: low\n", "not measured"),
        ("    at_most: 5 us\n", "not measured"),
        ("    at_least: 20 GB/s\n    at_most: 5 us\n", "not measured"),
        ("    at_least: 20 GB/s\n", "met"),
        ("    at_least: 80 % of limit\n", "met"),
        ("    at_least: 25 GB/s\n", "not met"),
    ],
)
def test_rates_without_a_band_need_figures(tmp_path: Path, figures: str, state: str) -> None:
    clauses = f"  - require: check\n    check: pt2pt\n{figures}"
    found = FakeFleet(tmp_path, clauses=clauses, banded=False).certify()
    assert states(found) == [state]
    assert bool(found.clauses[0].why) == (state != "met")


def test_a_check_without_results_is_not_measured(tmp_path: Path) -> None:
    clauses = CLAUSES.replace("80 % of limit", "95 % of high").replace(
        "check: pt2pt", "check: memory"
    )
    found = FakeFleet(tmp_path, clauses=clauses).certify()
    assert found.clauses[2].state == "not measured"


def test_an_interrupted_run_is_repeated_and_counts_once(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path)
    fleet.certify()
    number = len(runs(fleet))
    (sorted((fleet.record / "runs").iterdir())[-1] / "run.json").unlink()
    found = fleet.certify()
    assert found.verdict == "accepted"
    assert len(runs(fleet)) == number


def test_a_soak_counts_its_time_for_each_node(tmp_path: Path) -> None:
    clauses = "  - require: check\n    check: pt2pt\n  - require: soak\n    hours: 0.05\n"
    fleet = FakeFleet(tmp_path, clauses=clauses)
    found = fleet.certify()
    assert states(found) == ["met", "met"]
    assert [kind for kind, _ in runs(fleet)].count("soak") == 3
    fleet.failing = {"n1"}
    assert fleet.certify("n1").clauses[1].why == XID
    fleet.failing = set()
    assert fleet.certify("n1").verdict == "accepted"
    assert [kind for kind, _ in runs(fleet)].count("soak") == 7


def test_another_contract_or_site_begins_another_record(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path)
    fleet.certify()
    fleet.contract_file.write_text(
        fleet.contract_file.read_text() + "  - require: soak\n    hours: 1\n"
    )
    with pytest.raises(BusbarError, match="has changed since"):
        fleet.certify()


def test_what_many_nodes_measured_together_is_repeated_after_a_repair(tmp_path: Path) -> None:
    clauses = "  - require: check\n    check: pt2pt_nodes\n    nodes: 3\n    at_least: 20 GB/s\n"
    fleet = FakeFleet(tmp_path, clauses=clauses, slow={"n1"})
    found = fleet.certify()
    assert (found.clauses[0].state, found.clauses[0].where) == ("not met", "n0,n1,n2")
    assert fleet.certify().clauses == found.clauses
    fleet.slow = set()
    assert fleet.certify("n1").verdict == "accepted"
    assert [kind for kind, _ in runs(fleet)] == ["begun", "check", "repaired", "check"]


def test_numbers_of_devices_are_masked(tmp_path: Path) -> None:
    def measure(*_: object) -> Ended:
        text = "Serial Number: 1320-A\nGPU 0 (UUID: GPU-01234567-89ab-cdef-0123-456789abcdef)\n"
        (tmp_path / "log").write_text(f"{text}node guid: 0x0c42a10300a1b2c3, 16777216 24100.12\n")
        return Ended(0, late=False, seconds=1.0, said="")

    contract = Contract(site="local", clauses=[Clause(require="gate")])
    executor = Executor(contract, "local", None, Interruption(), print, redact=True)
    object.__setattr__(executor, "_measure", measure)
    executor._act(Work("gate"), ("n0",), tmp_path)
    assert (tmp_path / "log").read_text() == (
        "Serial Number:[redacted]\nGPU 0 (UUID: [redacted])\n"
        "node guid: [redacted], 16777216 24100.12\n"
    )


def test_attached_files_belong_to_the_record(tmp_path: Path) -> None:
    fleet = FakeFleet(tmp_path)
    site, sbom = sites.load(str(tmp_path / "fleet")), tmp_path / "sbom.json"
    sbom.write_text("{}")
    begin(fleet.record, fleet.contract_file, site, [sbom])
    fleet.certify()
    names = [
        each["name"] for each in json.loads((fleet.record / "record.json").read_text())["subject"]
    ]
    assert "attached/sbom.json" in names
    sbom.write_text("{ }")
    with pytest.raises(BusbarError, match="has changed since"):
        begin(fleet.record, fleet.contract_file, site, [sbom])
    os.mkfifo(tmp_path / "pipe")
    for name in ("lost", "pipe"):
        with pytest.raises(BusbarError, match="--attach"):
            begin(fleet.record, fleet.contract_file, site, [tmp_path / name])
    with pytest.raises(BusbarError, match="contains other files"):
        begin(tmp_path / "fleet", fleet.contract_file, site)


def test_a_removed_signature_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busbar = Command(capfd)  # it runs in a child
    monkeypatch.setattr(Executor, "run", lambda *_: None)
    contract = tmp_path / "contract.yaml"
    contract.write_text("site: local\nclauses: [{require: gate}]\n")
    words = f"certify run --contract {contract} --output {tmp_path / 'record'}"
    assert "signature" not in busbar(words).err
    (tmp_path / "record/record.json.sig").touch()
    assert "without signatures; next, run: busbar certify sign" in busbar(words).err
