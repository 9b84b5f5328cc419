# SPDX-License-Identifier: MIT
"""The record of a node: what combines, what comes next, and that nothing runs by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from busbar.check.document import document_of
from busbar.cli import main
from busbar.cluster.nodes.looks import look_of
from busbar.cluster.nodes.record import NodesDocument, took, update, updated
from busbar.cluster.sweep.document import GoneNode, RunAccusation, SweepRun
from busbar.document import parse_document, to_json
from busbar.engine.results import Outcome, Result
from busbar.gate.findings import Basis, GateFinding, concluded
from busbar.gate.site import Rule, Rules
from busbar.site.gate import NodePolicy
from busbar.slurm.nodes import Node
from busbar.verdict import Verdict
from tests.cases import cases
from tests.files import executable
from tests.small_site import small_site

DAY_S, FIRST_S = 86400, 946684800  # 2000-01-01
NODES = tuple(f"n{n}" for n in range(1, 9))
IDLE = dict.fromkeys(NODES, "idle")
EMPTY = NodesDocument()
RULES = Rules(checks={name: Rule("enforce") for name in ("gpu_ecc", "mount", "nic_state")})


def gate(directory: Path, day: int, *faults: str, node: str = "n1") -> Path:
    """What the gate printed on a day."""
    found = [GateFinding(name, Verdict.FAILED, value="bad") for name in faults]
    path = directory / f"gate-{node}-{day}.json"
    document = concluded(
        node, Basis("alpha", rules=RULES), found, at=FIRST_S + day * DAY_S, seconds=1
    )
    path.write_text(json.dumps(to_json(document)))
    return path


def sweep(directory: Path, **keys: object) -> Path:
    """What a sweep printed."""
    empty = {"verdict": Verdict.DEGRADED, "nodes": NODES, "accused": (), "suspects": ()}
    document = SweepRun(**empty | {"unmeasured": ()} | keys)  # type: ignore[arg-type]
    wrong = [what for key, what in document.contradictions() if key == "verdict"]
    if wrong:
        document = replace(document, verdict=Verdict(wrong[0].rpartition(" ")[2]))
    path = directory / "sweep.json"
    path.write_text(json.dumps(to_json(document)))
    return path


def checks(directory: Path, *bad: str) -> Path:
    """Results of a check on each node, and of one on pairs."""
    rows = [
        Result(
            *("copy", Verdict.FAILED if node in bad else Verdict.PASS, node),
            metric="bandwidth",
            bytes=8,
            gb_per_s=1.5,
            low=1.0,
            high=2.0,
            message="slow" if node in bad else "",
        )
        for node in (*NODES, "n1,n2")
    ]
    path = directory / "results.json"
    document = document_of("alpha", "ucx-1.14", [Outcome("copy", "ucx-1.14", tuple(rows))])
    path.write_text(json.dumps(to_json(document)))
    return path


def after(
    *files: Path, before: NodesDocument = EMPTY, slurm: Mapping[str, str] = IDLE
) -> NodesDocument:
    known = {name: Node(name, *text.split("|")) for name, text in slurm.items()}
    return updated(before, [look_of(path) for path in files], known, NodePolicy())


def states(document: NodesDocument) -> dict[str, tuple[str, str]]:
    return {one.node: (one.state, one.next) for one in document.nodes if one.next}


def test_a_fault_leads_from_drain_over_repairs_to_resume(tmp_path: Path) -> None:
    ours = "drained|[node_problem] gpu_ecc (busbar)"
    document = after(gate(tmp_path, 1, "gpu_ecc"))
    assert states(document) == {"n1": ("faulty", "drain")}
    wanted = []
    for day in (2, 3, 4):
        document = after(gate(tmp_path, day, "gpu_ecc"), before=document, slurm={"n1": ours})
        [record] = document.nodes
        wanted.append(record.next)
        assert record.next
        done = took(record, record.next, f"2000-01-0{day + 1}T12:00:00+00:00", "me")
        document = after(before=NodesDocument(nodes=(done,)), slurm={"n1": ours})
        assert states(document) == {"n1": ("faulty", "retest")}, "it was repaired since"
    assert wanted == ["reset", "reboot", "ticket"], "what was done did not help"
    assert document.nodes[0].since == "2000-01-02T00:00:00+00:00"
    document = after(gate(tmp_path, 9), before=document, slurm={"n1": ours})
    assert states(document) == {"n1": ("healthy", "resume")}
    assert states(after(before=document)) == {}
    assert states(after(before=document, slurm={"n1": "drained|bad fan"})) == {}, (
        "not ours to resume"
    )


def accused(node: str, kind: str = "node", *, confirmed: bool = True) -> RunAccusation:
    return RunAccusation(node, kind, "0.5 GB/s", tuple(node.split("-")), confirmed=confirmed)  # type: ignore[arg-type]


SWEEPS: dict[str, tuple[dict[str, object], dict[str, tuple[str, str]]]] = {
    "a node": ({"accused": (accused("n2"),)}, {"n2": ("faulty", "drain")}),
    "not confirmed": (
        {"accused": (accused("n2", confirmed=False),)},
        {"n2": ("suspect", "retest")},
    ),
    "a link": (
        {"accused": (accused("n2-n3", "link"),)},
        {"n2": ("suspect", "retest"), "n3": ("suspect", "retest")},
    ),
    "an uplink": ({"accused": (accused("n2-n3", "uplink"),)}, {}),
    "lost": ({"gone": (GoneNode("n4", "down"),)}, {"n4": ("faulty", "drain")}),
    "wrong data inside": ({"wrong_data": ("n5/gpu0-host",)}, {"n5": ("faulty", "drain")}),
    "wrong data between": (
        {"wrong_data": ("n5-n6/mlx5_0",)},
        {"n5": ("suspect", "retest"), "n6": ("suspect", "retest")},
    ),
    "at times": ({"unsteady": ("n7",)}, {"n7": ("suspect", "retest")}),
}


@cases(("keys", "found"), SWEEPS.values())
def test_what_a_sweep_says_of_nodes(
    keys: dict[str, object], found: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    document = after(sweep(tmp_path, **keys))
    assert len(document.nodes) == len(NODES)
    assert states(document) == found


CHECKS: dict[str, tuple[Sequence[str], dict[str, tuple[str, str]]]] = {
    "none": ((), {}),
    "one node": (("n3",), {"n3": ("faulty", "drain")}),
    "half of the nodes": (NODES[:4], dict.fromkeys(NODES[:4], ("faulty", "drain"))),
    "a pair": (("n1,n2",), {"n1": ("suspect", "retest"), "n2": ("suspect", "retest")}),
    "most nodes": (NODES[:6], {}),
}


@cases(("bad", "found"), CHECKS.values())
def test_what_checks_say_of_nodes(
    bad: Sequence[str], found: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    assert states(after(checks(tmp_path, *bad))) == found


def test_most_of_a_fleet_is_not_drained(tmp_path: Path) -> None:
    """Not even if each node by itself has a fault."""
    faulty = [gate(tmp_path, 1, "mount", node=node) for node in NODES[:5]]
    document = after(sweep(tmp_path), *faulty)
    assert states(document) == dict.fromkeys(NODES[:5], ("faulty", "retest"))


@cases("name", ["ALL", "all", "n[1-8]", "n1,n2", "n1 n2", "-n1", "n1\n", "$(touch x)"])
def test_only_names_of_one_node_get_to_a_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busbar.slurm.client.answer", lambda *_, **__: f"{name}|idle|none\n")
    policy = NodePolicy(commands={"changed": ("/bin/touch", str(tmp_path / "ran"))})
    told: list[str] = []
    look = replace(look_of(gate(tmp_path, 1, "mount")), nodes=frozenset([name, "all2"]), found={})
    update(tmp_path, [look], policy, told.append, {})
    found = look_of(gate(tmp_path, 2, "mount")).found["n1"]
    again = replace(look, found={name: found})
    update(tmp_path, [again], policy, told.append, {})
    assert told == []
    names = {"nodes": [{"node": name, "looks": {}}]}
    with pytest.raises(ValueError, match=r"nodes\.0\.node: .* is not the name of one node"):
        parse_document(NodesDocument, names)


def test_a_look_replaces_only_what_its_source_found_before(tmp_path: Path) -> None:
    document = after(gate(tmp_path, 1, "mount"), sweep(tmp_path, accused=(accused("n1"),)))
    assert [one.source for one in document.nodes[0].evidence] == ["sweep", "gate"]
    document = after(gate(tmp_path, 2), before=document)
    assert [one.source for one in document.nodes[0].evidence] == ["sweep"]
    assert after(gate(tmp_path, 1, "mount"), before=document) == document, "an older look"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["node", *words])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_command_keeps_records_and_runs_only_what_the_site_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busbar.slurm.client.answer", lambda *_, **__: "n1|idle|none\n")
    place = f"--output={tmp_path / 'nights'}"
    status, shown, told = run(capsys, "--add", str(gate(tmp_path, 1, "mount")), place)
    assert (status, told) == (1, "")
    assert shown == (
        "n1: faulty since 2000-01-02T00:00:00+00:00\n"
        "  next: drain\n"
        "  Slurm: n1 idle\n"
        "  gate at 2000-01-02T00:00:00+00:00: mount bad vs healthy: mount it\n"
        "1 of 1 nodes shown\n"
    )
    events = tmp_path / "events"
    program = executable(tmp_path / "event", f'{{ printf "%s " "$1"; cat; }} >>{events}')
    site = small_site(tmp_path)
    commands = {
        "changed": [str(program), "changed"],
        "drain": [str(program), "drain {node} {reason}"],
    }
    policy = f"nodes: {json.dumps({'commands': commands})}\n"
    (site / "site.yaml").write_text((site / "site.yaml").read_text() + policy)
    run(capsys, "--add", str(gate(tmp_path, 2)), place, f"--site={site}")
    bad = str(gate(tmp_path, 3, "mount"))
    _, _, told = run(capsys, "--add", bad, place, f"--site={site}")
    assert told == f"busbar: n1: changed: ran {program}\nbusbar: n1: drain: ran {program}\n"
    words = [line.partition(" {") for line in events.read_text().splitlines()]
    assert [(word, json.loads(f"{{{text}")["state"]) for word, _, text in words] == [
        ("changed", "healthy"),
        ("changed", "faulty"),
        ("drain n1 [node_problem] gate: mount bad vs healthy: mount it (busbar)", "faulty"),
    ]
    run(capsys, "--add", bad, place, f"--site={site}")
    assert len(events.read_text().splitlines()) == 3, "nothing has changed"
    program.chmod(0o777)
    run(capsys, "--add", str(gate(tmp_path, 4)), place)
    _, _, told = run(capsys, "--add", str(gate(tmp_path, 5, "mount")), place, f"--site={site}")
    assert "can write to" in told
    assert len(events.read_text().splitlines()) == 3, "not run: others can change it"
    metrics = tmp_path / "nodes.prom"
    status, shown, _ = run(capsys, "n1", "--took", "reboot", place, f"--prometheus={metrics}")
    assert "  reboot at 20" in shown
    assert 'busbar_node_state{node="n1",state="faulty"} 1.0' in metrics.read_text()
    status, shown, _ = run(capsys, "n1", place, "--json")
    assert json.loads(shown)["nodes"][0]["taken"][-1]["action"] == "reboot"


@pytest.mark.parametrize(
    ("words", "error"),
    [(("n9",), "node n9: has no record"), (("--took", "drain"), "--took: needs a node")],
)
def test_a_wrong_call_is_one_line(
    words: tuple[str, ...], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, told = run(capsys, *words, f"--output={tmp_path}")
    assert status == 2
    assert error in told


def test_a_policy_chooses_the_repair(tmp_path: Path) -> None:
    look = look_of(gate(tmp_path, 1, "gpu_ecc"))
    policy = NodePolicy(actions={"gate": "ticket"})
    node = Node("n1", "drained", "busbar")
    assert updated(EMPTY, [look], {"n1": node}, policy).nodes[0].next == "ticket"
