# SPDX-License-Identifier: MIT
"""The site of a cluster of Slurm, by what its head prints and by a job on a node of each kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from busbar.detect.cluster import Cluster, Group, cluster_of, groups_of
from busbar.detect.gather import Outputs
from busbar.detect.machine import compose_cluster
from busbar.slurm.nodes import Hardware, parse_hardware
from tests.cases import cases
from tests.files import executable
from tests.said import Command

from .saved import detect_text, h200_outputs

NODE = (
    "NodeName={name} CPUTot={cpus} Gres={gres} NodeHostName={name} State={state}"
    " Sockets=2 ThreadsPerCore=1 Partitions={partitions} Reason=a State=DOWN=b\n"
)


def slurm(name: str, partitions: str, cpus: int = 64, gpus: int = 0) -> Hardware:
    resources = (("", gpus),) if gpus else ()
    return Hardware(name, cpus, tuple(partitions.split(",")), 2, 1, resources, "IDLE")


def test_each_node_is_in_one_partition_and_equal_ones_come_first() -> None:
    nodes = [slurm(f"g{n}", "all,gpu" + ",debug" * (n < 2), gpus=4) for n in range(8)]
    nodes += [slurm(f"c{n}", "all,cpu,long") for n in range(3)]
    groups, remarks = groups_of(nodes, default="long")
    assert [(group.queue, len(group.nodes)) for group in groups] == [("gpu", 8), ("long", 3)]
    assert groups[0].access == ("--partition=gpu", "--gres=gpu:4")
    assert groups[1].access == ("--partition=long",)
    assert remarks == ["partitions all, cpu, debug are omitted: others have their nodes"]


def test_the_kind_of_most_nodes_stands_for_a_partition_of_several() -> None:
    nodes = [slurm("n1", "Mixed"), slurm("n2", "Mixed"), slurm("n3", "Mixed", cpus=8)]
    (group,), (remark,) = groups_of(nodes)
    assert (group.name, [node.name for node in group.nodes]) == ("mixed", ["n1", "n2"])
    assert "has 1 nodes of a different kind than the 2 that are described" in remark


def test_a_mixed_partition_stands_for_the_nodes_that_no_other_has() -> None:
    """Here those without GPUs, though it has more of the others."""
    nodes = [slurm(f"g{n}", "all,gpu", gpus=4) for n in range(3)]
    nodes += [slurm(f"c{n}", "all", cpus=8) for n in range(2)]
    groups, (remark,) = groups_of(nodes)
    named = {group.queue: [node.name for node in group.nodes] for group in groups}
    assert named == {"gpu": ["g0", "g1", "g2"], "all": ["c0", "c1"]}
    assert "partition all has 3 nodes of a different kind than the 2 that are described" in remark


def test_gpus_of_another_type_are_another_kind() -> None:
    nodes = parse_hardware(
        NODE.format(name="a", cpus=64, gres="gpu:a100:4", state="IDLE", partitions="gpu")
        + NODE.format(name="b", cpus=64, gres="gpu:h100:4", state="IDLE", partitions="gpu")
    )
    _, (remark,) = groups_of(nodes)
    assert "has 1 nodes of a different kind" in remark
    assert groups_of([Hardware("n1", 4, ())]) == ([], [])


def test_names_that_differ_in_their_case_only() -> None:
    groups, _ = groups_of([slurm("n1", "GPU"), slurm("n2", "gpu"), slurm("n3", "Größe")])
    names = [group.name for group in groups]
    assert len({*names}) == 3
    assert {"gpu", "node"} <= {*names}


@cases(
    ("gres", "count"),
    [
        ("gpu:h20:8(S:0-1)", 8),
        ("gpu:2", 2),
        ("gpu:a100:2(S:0),gpu:h100:4(S:1),nvme:3", 6),
        ("(null)", 0),
        ("shard:16,mygpu:4", 0),
    ],
)
def test_gpus_in_generic_resources(gres: str, count: int) -> None:
    line = NODE.format(name="n1", cpus=4, gres=gres, state="IDLE", partitions="a,b")
    (node,) = parse_hardware(line)
    assert (node.gpu_count, node.state, node.partitions) == (count, "IDLE", ("a", "b"))
    assert (node.sockets, node.threads_per_core, node.is_idle) == (2, 1, True)


def test_what_a_node_prints_makes_the_site() -> None:
    """As the job hands it over, with Slurm's count of CPUs; the network makes a feature."""
    outputs = Outputs(h200_outputs() | {"ibstat": detect_text("ibstat-synthetic.txt")}, cpus=(3,))
    handed = TypeAdapter(Outputs).validate_json(TypeAdapter(Outputs).dump_json(outputs))
    assert handed == outputs
    groups = (
        Group("gpu", (slurm("g1", "gpu", 96, gpus=4), slurm("g2", "gpu", 96, gpus=4)), "gpu"),
        Group("cpu", (slurm("c1", "cpu", 128),), "cpu"),
    )
    site = compose_cluster(Cluster(groups, {"gpu": handed}, ("pmix",)), "head").site
    gpu, cpu = site.partitions
    assert (gpu.name, gpu.nodes, gpu.launcher, gpu.features) == ("gpu", 2, "srun", ("roce",))
    assert (cpu.name, cpu.nodes, cpu.features) == ("cpu", 1, ())
    assert (gpu.nodelist, cpu.nodelist) == ("g[1-2]", "c1")
    node = site.node_type("gpu")
    assert (node.cores, node.sockets, node.threads_per_core) == (96, 2, 1)
    assert node.gpus
    assert node.gpus.model == "NVIDIA H200"
    assert site.node_type("cpu").cores == 128
    assert site.fabric
    assert site.fabric.provider == "verbs"
    assert (site.family, site.scheduler) == ("roce", "slurm")
    for partition, stack in ((gpu, "cuda"), (cpu, "host")):
        assert {delivery.stack for delivery in site.deliveries_of(partition)} == {stack}


@cases(
    ("offered", "launcher"),
    [(("pmix", "pmi2"), "srun"), (None, "srun"), (("pmi2",), "mpirun"), ((), "mpirun")],
)
def test_srun_starts_ranks_if_it_has_their_pmi(
    offered: tuple[str, ...] | None, launcher: str
) -> None:
    groups = (Group("lab", (slurm("n1", "lab"),), "lab"),)
    site = compose_cluster(Cluster(groups, {}, offered), "head").site
    assert site.partitions[0].launcher == launcher


PROGRAM = 'case "$*" in {cases} *) exit 1;; esac'


def test_the_head_describes_what_slurm_knows_if_no_node_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    """And never its own hardware."""
    nodes = "".join(
        NODE.format(name=f"n{n}", cpus=48, gres="gpu:4", state=state, partitions="Batch")
        for n, state in enumerate(("DOWN*", "ALLOCATED", "IDLE"))
    )
    (tmp_path / "nodes").write_text(nodes)
    programs = {
        "scontrol": f"'--oneliner show node') cat {tmp_path}/nodes;;",
        "sinfo": "'--noheader --format=%P') echo 'Batch*';;",
        "srun": "--mpi=list) echo pmix;; *) echo 'srun: error: Unable to allocate resources:"
        " Invalid account' >&2; exit 1;;",
    }
    for name, answers in programs.items():
        executable(tmp_path / name, PROGRAM.format(cases=answers))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    said = busbar("site detect --output", tmp_path / "alpha")
    assert said.status == 0
    assert "is what Slurm states: Unable to allocate resources: Invalid account; after" in said.err
    assert "Slurm has 4 GPUs on a node of partition Batch, which no tool has described" in said.err
    site = yaml.safe_load((tmp_path / "alpha" / "site.yaml").read_text())
    assert (site["name"], site["scheduler"]) == ("alpha", "slurm")
    (partition,) = site["partitions"]
    assert (partition["name"], partition["nodes"]) == ("batch", 3)
    assert partition["access"] == ["--partition=Batch", "--gres=gpu:4"]
    assert site["node_types"] == {"batch": {"cores": 48, "sockets": 2, "threads_per_core": 1}}
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    said = busbar("site detect --json")
    assert "this command runs inside a job; outside the job, run: srun --nodes=1" in said.err
    assert (said.status, said.json["name"]) == (0, "detected")


def test_a_compute_node_describes_its_own_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also inside a job, where no other node can be asked."""
    host = Outputs(h200_outputs(), host="g1.cluster.example")
    nodes = NODE.format(name="g1", cpus=64, gres="gpu:4", state="MIXED", partitions="gpu")
    nodes += NODE.format(name="g2", cpus=64, gres="gpu:4", state="IDLE", partitions="gpu")
    nodes += NODE.format(name="c1", cpus=8, gres="(null)", state="IDLE", partitions="cpu")
    executable(tmp_path / "scontrol", f"cat <<'END'\n{nodes}END")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    cluster = cluster_of(host)
    assert cluster
    assert cluster.described == {"gpu": host}
    (remark,) = cluster.remarks
    assert remark.startswith(
        "the hardware of partition cpu is what Slurm states: this command runs"
    )
    site = compose_cluster(cluster, host.host).site
    gpus = site.node_type("gpu").gpus
    assert gpus
    assert (gpus.model, site.node_type("cpu").gpus) == ("NVIDIA H200", None)
