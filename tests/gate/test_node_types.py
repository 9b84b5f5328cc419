# SPDX-License-Identifier: MIT
"""A site with several types of nodes: the gate knows its own by the nodelists, not by the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar import cli
from busbar.gate.run import GateOptions, run
from busbar.gate.site import read
from busbar.gate.slurm import SlurmContext
from busbar.site.load import load
from tests.cases import cases

from .node import Node, gpu, report

pytestmark = pytest.mark.usefixtures("at_once")
PROLOG = "prolog_slurmd"


def two_types(node: Node, gpus: str = "n[1-4]", cpus: str = "c1") -> Path:
    """Add a partition without GPUs, and name the nodes of both."""
    node.site()
    path = node.root / "here/site.yaml"
    text = path.read_text()
    partition = "  - {name: gpu, node_type: node}\n"
    lists = [f", nodelist: '{nodes}'" if nodes else "" for nodes in (gpus, cpus)]
    both = partition.replace("}", f"{lists[0]}}}")
    both += f"  - {{name: cpu, node_type: build{lists[1]}}}\n"
    text = text.replace(partition, both).replace("node_types:\n", "node_types:\n  build: {}\n")
    path.write_text(text)
    return path.parent


@cases(
    ("slurm", "gpus", "given", "type_known"),
    [
        (SlurmContext("n1"), "n[1-4]", "", True),  # a health check
        (SlurmContext("n1", job="7", partition="gpu", context=PROLOG), "n[1-4]", "", True),
        # A user chooses the partition: neither hides a fault nor drains a node of another type.
        (SlurmContext("n1", job="7", partition="cpu", context=PROLOG), "n[1-4]", "", True),
        (SlurmContext("n1", job="7", partition="gpu", context=PROLOG), "n9", "", False),
        (SlurmContext("n1", job="7", partition="gpu", context=PROLOG), "", "", False),
        (SlurmContext("n1"), "", "", False),
        (SlurmContext("n1"), "", "gpu", True),
        (SlurmContext("n1"), "", "nope", False),
        (SlurmContext("n1"), "n[1-4", "", False),
        (SlurmContext("n1"), "n1,c1", "", False),  # c1 has two types
    ],
)
def test_a_lost_gpu_drains_only_if_the_type_is_known(
    node: Node, slurm: SlurmContext, gpus: str, given: str, type_known: bool
) -> None:
    two_types(node, gpus)
    node.smi(report(gpu(1)))
    result = run(node.options(slurm, partition=given))
    assert (result.drain, result.misconfigured) == (type_known, not type_known)
    assert bool(result.problems) != type_known


def test_a_node_without_gpus_is_judged_by_its_own_type(node: Node) -> None:
    two_types(node, "n2", "n1")
    node.smi(script="exit 9")
    for name in ("n1", "n2"):
        slurm = SlurmContext(name, job="7", partition="gpu", context=PROLOG)
        (row,) = (row for row in run(node.options(slurm)).checks if row.check == "gpu_count")
        assert row.band in ("", {"n1": "0", "n2": "2"}[name])


@cases(("context", "status"), [("", 2), (PROLOG, 0)])
def test_a_gate_that_does_not_know_the_type_is_an_error(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    context: str,
    status: int,
) -> None:
    two_types(node, "")

    def of_node(options: GateOptions) -> object:
        return run(node.options(options.slurm, partition=options.partition))

    monkeypatch.setenv("SLURM_SCRIPT_CONTEXT", context)
    monkeypatch.setattr("busbar.gate.command.run", of_node)
    for words, said in (([], "and no nodelist with "), (["--partition=nope"], "known: gpu, cpu")):
        assert cli.main(["gate", "--passive", *words]) == status
        captured = capsys.readouterr()
        assert said in captured.err
        assert "not complete: " in captured.out


def test_compile_hands_the_nodes_on_and_names_partitions_without(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["gate", "compile", "--site", str(two_types(node)), "--output", str(tmp_path)]
    assert cli.main(words) == 0
    hosts = {"n1": "gpu", "n2": "gpu", "n3": "gpu", "n4": "gpu", "c1": "cpu"}
    assert read(tmp_path / "here.json").hosts == hosts
    assert capsys.readouterr().err == ""
    assert load(words[3]).unlisted == ()
    two_types(node, cpus="")
    assert cli.main(words) == 0
    assert "partition cpu has no nodelist: on its nodes, pass" in capsys.readouterr().err
