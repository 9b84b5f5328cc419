# SPDX-License-Identifier: MIT
"""Every rule of `busbar site lint` has a bad example."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from busbar.expect.lint import lint
from tests.cases import cases
from tests.said import Command

from .edited import alone, edit, put


def reading(bench: str, gb_per_s: float) -> dict[str, Any]:
    return {"bench": bench, "nodes": 2, "gb_per_s": gb_per_s, "source": "threshold"}


def latency(us: float, nbytes: int) -> dict[str, Any]:
    return {"bench": "osu_latency", "us": us, "bytes": nbytes, "source": "threshold"}


# The site, the key that gets a value, the value, and what the finding must say: rule, next step.
# The finding is on the key as far as "|"; "[]" is a new entry of a list.
H200 = "node_types.h200x4"
BREACHES: dict[str, tuple[str, str, Any, str]] = {
    "unknown key": ("h200x4", f"{H200}.gpus.colour", "green", "unknown key; known: vendor, model"),
    "missing key": ("h200x4", "family", None, "missing key; add it"),
    "wrong type": ("h200x4", f"{H200}.gpus.count", "four", "'four'"),
    "a list of nodes": ("h200x4", "|partitions[0].nodelist", "n[1-", "missing bracket"),
    "fewer nodes in the list": (
        *("dgx-h100", "partitions[0].nodelist", "n1"),
        "names 1 nodes, but nodes is 2",
    ),
    "nodes of unknown type": (
        *("mi300x", "|gate", {"checks": {}}),
        "busbar gate cannot tell which nodes are of type spx; add nodelist",
    ),
    "no such family": ("p5", "family", "eva", "did you mean 'efa'?"),
    "no such node type": ("mi300x", "partitions[0].node_type", "spy", "unknown node type 'spy'"),
    "unknown link class": (
        *("mi300x", "node_types.spx.gpus.links|.all_pairs.class", "wire"),
        "unknown link class 'wire'",
    ),
    "two forms of links": (
        *("h200x4", f"{H200}.gpus.links|.all_pairs", {"class": "nvlink4", "count": 1}),
        "exactly one of switched",
    ),
    "a pair twice": (
        *("mi250x", "node_types.gpu.gpus.links|.pairs[]"),
        {"between": [1, 0], "class": "xgmi-mi250x", "count": 2},
        "pair [0, 1] is listed twice",
    ),
    "a link to itself": (
        *("mi250x", "node_types.gpu.gpus.links|.pairs[0].between", [3, 3]),
        "links a GPU to itself",
    ),
    "a link to a GPU that is not there": (
        *("mi250x", "node_types.gpu.gpus.links.pairs[0].between", [0, 8], "no GPU 8"),
    ),
    "a package that is not full": (
        *("mi300x", "node_types.cpx.gpus|.links.package.devices", 3),
        "64 GPUs do not fill packages of 3",
    ),
    "fewer links to the switches than the GPU has": (
        *("dgx-h100", "node_types.gpu.gpus.links.switched.count", 4, "has 18; write count: 18"),
    ),
    "a misspelled option of sbatch": (
        *("dgx-h100", "partitions[0].access", ["--acount=ops"], "did you mean '--account'?"),
    ),
    "NIC near a GPU that is not there": (
        *("h20-roce", "node_types.h20.nics[3].near_gpus", [6, 8], "near GPU 8"),
    ),
    "a place on PCI Express of no GPU": (
        *("l40s", "node_types.gpu|.pcie", [{"gpus": [0, 1, 2, 4]}], "list each of 0 to 3 once"),
    ),
    "a switch above a NIC that is not there": (
        *("l40s", "node_types.gpu|.pcie"),
        [{"gpus": [0, 1], "switches": [{"gpus": [2, 3], "nics": ["mlx5_9"]}]}],
        "lists NIC mlx5_9, which the node does not have",
    ),
    "an uplink faster than its ports": (
        *("l40s", "node_types.gpu.pcie|"),
        [
            {"gpus": [0, 1]},
            {"switches": [{"gpus": [2, 3], "uplink": {"class": "pcie5-x16", "count": 2}}]},
        ],
        "126 GB/s, but the ports below the switch have 63",
    ),
    "a NIC without a rate": ("h20-roce", "node_types.h20.nics[0].class", None, "missing key"),
    "no nodes": ("h20-roce", "partitions[0].nodes", 0, "must be at least 1, got 0"),
    "rails": ("h20-roce", "fabric.rails", 8, "are on 4"),
    "NPS4 without CPX": (
        *("mi300x", "node_types.spx.gpus.partitioning"),
        {"compute": "QPX", "memory": "NPS4", "compute_count": 4},
        "partitioning.memory: NPS4 with QPX; NPS4 needs CPX",
    ),
    "more memory than compute partitions": (
        *("mi300x", "node_types.spx.gpus.partitioning"),
        {"compute": "SPX", "memory": "NPS2", "compute_count": 1},
        "partitioning.memory: more memory partitions (2) than compute partitions (1)",
    ),
    "several nodes without network": (
        *("mi250x", "partitions[0].nodes", 2, "without a network between them"),
    ),
    "a class by its generation": (
        "dgx-h100",
        "node_types.gpu.nics[0].class",
        "ndr400",
        "'ib-400g'?",
    ),
    "a class by another generation": (
        *("dgx-h100", "node_types.gpu.nics[0].class", "hdr", "did you mean 'ib-200g'?"),
    ),
    "RDMA over plain Ethernet": (
        *("gcp-a3-high", "fabric.provider", "verbs"),
        "verbs does not drive eth-200g of nodes of type gpu, only tcp does; correct provider",
    ),
    "stack of another vendor": ("mi300x", "deliveries[0].stack", "cuda", "the GPUs need rocm"),
    "srun without Slurm": (
        *("h200x4", "partitions[0].launcher", None),
        "srun needs Slurm, and the scheduler is local; add the launcher",
    ),
    "srun of PBS": (
        *("mi250x", "|scheduler", "pbs"),
        "partitions[0].launcher: srun needs Slurm, and the scheduler is pbs",
    ),
    "the network instead of the transport": (
        *("h20-roce", "fabric.provider", "RoCE", "got 'RoCE'; did you mean 'verbs'?"),
    ),
    "wrong architecture": (
        *("h200x4", f"{H200}.gpus.arch", "gfx942", "not an architecture of nvidia"),
    ),
    "bus addresses": (
        *("h20-roce", "node_types.h20.gpus.bus_ids|[7]", None, "7 addresses for 8 GPUs"),
    ),
    "p4d above its bound": (
        *("p4d", "references[]", reading("all_reduce", 300)),
        "references[2].gb_per_s: all_reduce on 2 nodes 300 GB/s is above the physical bound of"
        " 93.75 GB/s",
    ),
    "p5 above its bound": (
        *("p5", "references[]", reading("all_reduce", 800)),
        "references[5].gb_per_s: all_reduce on 2 nodes 800 GB/s is above the physical bound of"
        " 750 GB/s",
    ),
    "reference above a bound without a band": (
        *("p3dn", "references", [reading("all_gather", 40)]),
        "references[0].gb_per_s: all_gather on 2 nodes 40 GB/s is above the physical bound of"
        " 23.44 GB/s",
    ),
    "pair above its links": (
        *("mi250x", "references[0]|.pair", [0, 2]),
        "GB/s is above the physical bound of 50 GB/s",
    ),
    "another model with the proof kept": (
        *("h200x4", f"|{H200}.gpus.model", "NVIDIA H300"),
        "proof: proof is run, but no band of NVIDIA H300 has this proof; set proof to none",
    ),
    "hosts": ("p5", "hosts", "[", "invalid regular expression '['"),
    "CPUs": ("h200x4", f"{H200}.numa[0].cpus", "abc", "invalid CPU or range 'abc'"),
    "equal bus addresses": (
        *("h20-roce", "node_types.h20.gpus.bus_ids|[1]", "00000000:0f:00.0"),
        "duplicate address 00000000:0f:00.0",
    ),
    "a pair of one GPU": ("h200x4", "references[1]|.pair", [1, 1], "pair [1, 1] is one GPU"),
    "unknown harness": (
        *("h200x4", "references[0].harness", "nccl"),
        "unknown harness 'nccl'; known: nccl-tests, pytorch, rccl-tests",
    ),
    "unknown profile": (
        *("mi300x", "references[3].profile", "turbo"),
        "unknown profile 'turbo'; known: msccl-one-process",
    ),
    "a variable of two lines": (
        *("h20-roce", "tuning.NCCL_SOCKET_IFNAME", "a\nexport LD_PRELOAD=b"),
        "which a job script would execute",
    ),
    "a latency in GB/s": (
        *("h200x4", "references[1]|.bench", "osu_latency", "osu_latency needs us"),
    ),
    "a latency below its bound": (
        *("h200x4", "references[]", latency(1, 4194304)),
        "references[3].us: osu_latency 1 us is below the physical bound of 9.321 us",
    ),
    "a latency outside its band": (
        *("h200x4", "references[]", latency(14.4, 8)),
        "references[3].us: osu_latency 14.4 us is outside the band",
    ),
    "more GPUs than a node has": ("h200x4", f"{H200}.gpus.count", 100_000, "must be at most 128"),
    "unknown class to the host": (
        *("h200x4", f"{H200}.gpus.host_link.class", "wire", "unknown link class 'wire'"),
    ),
    "more links than a GPU has": (
        *("h200x4", f"{H200}.gpus.links", {"all_pairs": {"class": "nvlink4", "count": 18}}),
        "links.all_pairs: GPU 0 would have 54 links of nvlink4; a GPU has at most 18",
    ),
    "more links to a switch than a GPU has": (
        *("h200x4", f"{H200}.gpus.links.switched|.count", 24, "24 links of nvlink4"),
    ),
    "more links in pairs than a GPU has": (
        *("mi250x", "node_types.gpu.gpus.links.pairs|[0].count", 6),
        "GPU 0 would have 9 links of xgmi-mi250x",
    ),
    "a network between GPUs": (
        *("h200x4", f"{H200}.gpus.links", {"switched": {"class": "roce-400g", "count": 1}}),
        "roce-400g is a network link, but this key needs a GPU link",
    ),
    "NVLink as a NIC": (
        *("h20-roce", "node_types.h20.nics[0].class", "nvlink4"),
        "nvlink4 is a GPU link, but this key needs a network link",
    ),
    "NVLink to the host": (
        *("h200x4", f"{H200}.gpus.host_link.class", "nvlink4", "needs a host link"),
    ),
    "a NUMA domain twice": (
        *("h200x4", f"{H200}.numa[]", {"id": 0, "cpus": "64-95"}),
        "numa[1].id: duplicate NUMA domain 0",
    ),
    "a GPU in two NUMA domains": (
        *("h200x4", f"{H200}.numa[]", {"id": 1, "cpus": "64-95", "gpus": [3]}),
        "numa[1].gpus: GPU 3 is in NUMA domains 0 and 1",
    ),
    "a CPU in two NUMA domains": (
        *("h200x4", f"{H200}.numa[]", {"id": 1, "cpus": "63-95"}),
        "numa[1].cpus: CPU 63 is in NUMA domains 0 and 1",
    ),
    "a partition twice": (
        *("mi300x", "partitions[]", {"name": "spx", "node_type": "spx"}),
        "partitions[2].name: duplicate partition 'spx'",
    ),
    "a misspelt node type": ("mi300x", "partitions[0].node_type", "spxx", "did you mean 'spx'?"),
    "reference outside its band": (*("p5", "references[2].gb_per_s", 150, "is outside the band"),),
}


REFUSED = {
    "a link to a GPU that is not there",
    "a NIC without a rate",
    "no nodes",
    "an uplink faster than its ports",
}
"""What no command may answer for."""


@cases("case", BREACHES)
def test_lint_refuses(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    name, path, value, rule = BREACHES[case]
    file = edit(
        alone(tmp_path, name, monkeypatch), name, lambda s: put(s, path.replace("|", ""), value)
    )
    key = path.partition("|")[0].removesuffix("[]")
    said = busbar("site lint", name)
    assert said.status == 1
    finding = next(line for line in said.out.splitlines() if rule.lower() in line.lower())
    assert finding.startswith(str(file))
    assert f": {key}" in finding
    assert re.search(r"; \w", finding)  # what to do
    if case in REFUSED:
        used = busbar("expect --site", name, "--bench", "all_reduce")
        assert (used.status, used.err) == (2, f"busbar expect: {finding}\n")


def test_lint_of_all_names_each_site_once(copy: Path, busbar: Command) -> None:
    edit(copy, "p5", lambda s: s.update(colour="green"))
    # A latency is compared with a band of its own.
    good = {"bench": "osu_latency", "us": 7.9, "bytes": 8, "source": "h200x2/osu_tuning.tsv"}
    edit(copy, "h200x4", lambda s: s["references"].append(good))
    said = busbar("site lint --json")
    assert (said.status, [finding["site"] for finding in said.json]) == (1, ["p5"])


def test_a_site_without_its_configuration_of_reframe(copy: Path) -> None:
    (copy / "p5" / "reframe.py").unlink()
    (finding,) = lint("p5")
    assert "no reframe.py next to site.yaml" in finding.rule
    subprocess.run(finding.hint.partition(": ")[2].split(), check=True)
    assert lint("p5") == []


def test_an_unknown_link_class_is_named_once(copy: Path) -> None:
    """References cannot be judged with it, either."""

    def spoil(site: dict[str, Any]) -> None:
        for nic in site["node_types"]["gpu"]["nics"]:
            nic["class"] = "ib-ndr"

    edit(copy, "dgx-h100", spoil)
    (finding,) = lint("dgx-h100")
    assert (finding.rule, finding.hint) == (
        "unknown link class 'ib-ndr'",
        "did you mean 'ib-400g'?",
    )


def test_all_errors_of_the_schema_at_once(copy: Path, busbar: Command) -> None:
    def spoil(site: dict[str, Any]) -> None:
        site["famly"] = site.pop("family")
        site["scheduler"] = "slrum"
        site["partitions"][0]["nods"] = 2
        site["node_types"]["h200x4"]["gpus"]["count"] = "four"
        site["deliveries"][0]["lanes"] = ["ucx-1.41"]

    file = edit(copy, "h200x4", spoil)
    said = busbar("site show h200x4")
    lines = said.err.splitlines()
    assert (said.status, len(lines)) == (2, 6)
    for key, rule in (
        ("famly", "unknown key; did you mean 'family'?"),
        ("family", "missing key; add it"),
        ("scheduler", "unknown scheduler 'slrum'; did you mean 'slurm'?"),
        ("partitions[0].nods", "unknown key; did you mean 'nodes'?"),
        ("node_types.h200x4.gpus.count", "must be a whole number, got 'four'"),
        ("deliveries[0].lanes[0]", "did you mean 'ucx-1.14'?"),
    ):
        (line,) = [line for line in lines if f" {key}: " in line and rule in line]
        assert str(file) in line
        assert "pydantic" not in line


def test_a_class_that_shadows_a_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    """Its bands are lost; a class without a rate only adds to those."""
    file = alone(tmp_path, "l40s", monkeypatch) / "_families" / "links.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    shadow = "link_classes:\n  pcie4-x16: {raw_gb_per_s: 31, kind: host, source: own}\n"
    file.write_text(shadow)
    said = busbar("site lint l40s")
    assert said.status == 1
    assert f"{file}:2: link_classes.pcie4-x16: replaces the shipped link class" in said.out
    file.write_text("link_classes:\n  pcie4-x16: {bands: []}\n")
    assert busbar("site lint l40s").status == 0
