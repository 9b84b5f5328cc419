# SPDX-License-Identifier: MIT
"""Every rule of `busbar site lint` has a bad example."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbar.cli import main
from busbar.expect.lint import lint
from tests.cases import cases

from .edited import alone, edit

# What is done to a site, and what the finding must say: key, rule, next step.
BREACHES: dict[str, tuple[str, Callable[[dict[str, Any]], object], str, str]] = {
    "unknown key": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(colour="green"),
        "node_types.h200x4.gpus.colour",
        "unknown key; known: vendor, model",
    ),
    "missing key": (
        "h200x4",
        lambda s: s.pop("family"),
        "",
        "family: missing key; add it",
    ),
    "wrong type": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(count="four"),
        "node_types.h200x4.gpus.count",
        "'four'",
    ),
    "no such family": ("p5", lambda s: s.update(family="eva"), "family", "did you mean 'efa'?"),
    "no such node type": (
        "mi300x",
        lambda s: s["partitions"][0].update(node_type="spy"),
        "partitions[0].node_type",
        "unknown node type 'spy'",
    ),
    "unknown link class": (
        "mi300x",
        lambda s: s["node_types"]["spx"]["gpus"]["links"]["all_pairs"].update({"class": "wire"}),
        "node_types.spx.gpus.links",
        "unknown link class 'wire'",
    ),
    "two forms of links": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"]["links"].update(
            all_pairs={"class": "nvlink4", "count": 1}
        ),
        "gpus.links",
        "exactly one of switched",
    ),
    "a pair twice": (
        "mi250x",
        lambda s: s["node_types"]["gpu"]["gpus"]["links"]["pairs"].append(
            {"between": [1, 0], "class": "xgmi-mi250x", "count": 2}
        ),
        "gpus.links",
        "pair [0, 1] is listed twice",
    ),
    "a link to itself": (
        "mi250x",
        lambda s: s["node_types"]["gpu"]["gpus"]["links"]["pairs"][0].update(between=[3, 3]),
        "gpus.links",
        "links a GPU to itself",
    ),
    "a link to a GPU that is not there": (
        "mi250x",
        lambda s: s["node_types"]["gpu"]["gpus"]["links"]["pairs"][0].update(between=[0, 8]),
        "gpus.links.pairs[0].between",
        "no GPU 8",
    ),
    "NIC near a GPU that is not there": (
        "h20-roce",
        lambda s: s["node_types"]["h20"]["nics"][3].update(near_gpus=[6, 8]),
        "node_types.h20.nics[3].near_gpus",
        "near GPU 8",
    ),
    "rails": ("h20-roce", lambda s: s["fabric"].update(rails=8), "fabric.rails", "are on 4"),
    "NPS4 without CPX": (
        "mi300x",
        lambda s: s["node_types"]["spx"]["gpus"].update(
            partitioning={"compute": "QPX", "memory": "NPS4", "compute_count": 4}
        ),
        "node_types.spx.gpus.partitioning.memory",
        "NPS4 with QPX; NPS4 needs CPX",
    ),
    "more memory than compute partitions": (
        "mi300x",
        lambda s: s["node_types"]["spx"]["gpus"].update(
            partitioning={"compute": "SPX", "memory": "NPS2", "compute_count": 1}
        ),
        "node_types.spx.gpus.partitioning.memory",
        "more memory partitions (2) than compute partitions (1)",
    ),
    "several nodes without network": (
        "mi250x",
        lambda s: s["partitions"][0].update(nodes=2),
        "partitions[0].nodes",
        "without a network between them",
    ),
    "stack of another vendor": (
        "mi300x",
        lambda s: s["deliveries"][0].update(stack="cuda"),
        "deliveries[0].stack",
        "the GPUs need rocm",
    ),
    "srun without Slurm": (
        "h200x4",
        lambda s: s["partitions"][0].pop("launcher"),
        "partitions[0].launcher",
        "srun needs Slurm, and the scheduler is local; add the launcher",
    ),
    "srun of PBS": (
        "mi250x",
        lambda s: s.update(scheduler="pbs"),
        "partitions[0].launcher",
        "srun needs Slurm, and the scheduler is pbs",
    ),
    "the network instead of the transport": (
        "h20-roce",
        lambda s: s["fabric"].update(provider="RoCE"),
        "fabric.provider",
        "got 'RoCE'; did you mean 'verbs'?",
    ),
    "wrong architecture": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(arch="gfx942"),
        "node_types.h200x4.gpus.arch",
        "not an architecture of nvidia",
    ),
    "bus addresses": (
        "h20-roce",
        lambda s: s["node_types"]["h20"]["gpus"]["bus_ids"].pop(),
        "node_types.h20.gpus.bus_ids",
        "7 addresses for 8 GPUs",
    ),
    "p4d above its bound": (
        "p4d",
        lambda s: s["references"].append(
            {"bench": "all_reduce", "nodes": 2, "gb_per_s": 300, "source": "threshold"}
        ),
        "references[2].gb_per_s",
        "above the physical bound of 93.75 GB/s",
    ),
    "p5 above its bound": (
        "p5",
        lambda s: s["references"].append(
            {"bench": "all_reduce", "nodes": 2, "gb_per_s": 800, "source": "threshold"}
        ),
        "references[5].gb_per_s",
        "above the physical bound of 750 GB/s",
    ),
    "reference above a bound without a band": (
        "p3dn",
        lambda s: s.update(
            references=[
                {"bench": "all_gather", "nodes": 2, "gb_per_s": 40, "source": "threshold"},
            ]
        ),
        "references[0].gb_per_s",
        "above the physical bound of 23.44 GB/s",
    ),
    "pair above its links": (
        "mi250x",
        lambda s: s["references"][0].update(pair=[0, 2]),
        "references[0].gb_per_s",
        "above the physical bound of 50 GB/s",
    ),
    "another model with the proof kept": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(model="NVIDIA H300"),
        "proof",
        "proof is run, but no band of NVIDIA H300 has this proof; set proof to none",
    ),
    "hosts": ("p5", lambda s: s.update(hosts="["), "hosts", "invalid regular expression '['"),
    "CPUs": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["numa"][0].update(cpus="abc"),
        "node_types.h200x4.numa[0].cpus",
        "invalid CPU or range 'abc'",
    ),
    "equal bus addresses": (
        "h20-roce",
        lambda s: s["node_types"]["h20"]["gpus"]["bus_ids"].__setitem__(1, "00000000:0f:00.0"),
        "node_types.h20.gpus.bus_ids",
        "duplicate address 00000000:0f:00.0",
    ),
    "a pair of one GPU": (
        "h200x4",
        lambda s: s["references"][1].update(pair=[1, 1]),
        "references[1]",
        "pair [1, 1] is one GPU",
    ),
    "unknown harness": (
        "h200x4",
        lambda s: s["references"][0].update(harness="nccl"),
        "references[0].harness",
        "unknown harness 'nccl'; known: nccl-tests, pytorch, rccl-tests",
    ),
    "unknown profile": (
        "mi300x",
        lambda s: s["references"][3].update(profile="turbo"),
        "references[3].profile",
        "unknown profile 'turbo'; known: msccl-one-process",
    ),
    "a variable of two lines": (
        "h20-roce",
        lambda s: s["tuning"].update(NCCL_SOCKET_IFNAME="a\nexport LD_PRELOAD=b"),
        "tuning.NCCL_SOCKET_IFNAME",
        "must be one line without control characters",
    ),
    "a latency in GB/s": (
        "h200x4",
        lambda s: s["references"][1].update(bench="osu_latency"),
        "references[1]",
        "osu_latency needs us",
    ),
    "a latency below its bound": (
        "h200x4",
        lambda s: s["references"].append(
            {"bench": "osu_latency", "us": 1, "bytes": 4194304, "source": "threshold"}
        ),
        "references[3].us",
        "1 us is below the physical bound of 9.321 us",
    ),
    "a latency outside its band": (
        "h200x4",
        lambda s: s["references"].append(
            {"bench": "osu_latency", "us": 14.4, "bytes": 8, "source": "threshold"}
        ),
        "references[3].us",
        "14.4 us is outside the band",
    ),
    "more GPUs than a node has": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(count=100_000),
        "node_types.h200x4.gpus.count",
        "must be at most 128",
    ),
    "unknown class to the host": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"]["host_link"].update({"class": "wire"}),
        "node_types.h200x4.gpus.host_link.class",
        "unknown link class 'wire'",
    ),
    "more links than a GPU has": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(
            links={"all_pairs": {"class": "nvlink4", "count": 18}}
        ),
        "node_types.h200x4.gpus.links.all_pairs",
        "54 links of nvlink4; a GPU has at most 18",
    ),
    "more links to a switch than a GPU has": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"]["links"]["switched"].update(count=24),
        "node_types.h200x4.gpus.links.switched",
        "24 links of nvlink4",
    ),
    "more links in pairs than a GPU has": (
        "mi250x",
        lambda s: s["node_types"]["gpu"]["gpus"]["links"]["pairs"][0].update(count=6),
        "node_types.gpu.gpus.links.pairs",
        "GPU 0 would have 9 links of xgmi-mi250x",
    ),
    "a network between GPUs": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"].update(
            links={"switched": {"class": "roce-400g", "count": 1}}
        ),
        "node_types.h200x4.gpus.links",
        "roce-400g is a network link, but this key needs a GPU link",
    ),
    "NVLink as a NIC": (
        "h20-roce",
        lambda s: s["node_types"]["h20"]["nics"][0].update({"class": "nvlink4"}),
        "node_types.h20.nics[0].class",
        "nvlink4 is a GPU link, but this key needs a network link",
    ),
    "NVLink to the host": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["gpus"]["host_link"].update({"class": "nvlink4"}),
        "node_types.h200x4.gpus.host_link.class",
        "needs a host link",
    ),
    "a NUMA domain twice": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["numa"].append({"id": 0, "cpus": "64-95"}),
        "node_types.h200x4.numa[1].id",
        "duplicate NUMA domain 0",
    ),
    "a GPU in two NUMA domains": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["numa"].append(
            {"id": 1, "cpus": "64-95", "gpus": [3]}
        ),
        "node_types.h200x4.numa[1].gpus",
        "GPU 3 is in NUMA domains 0 and 1",
    ),
    "a CPU in two NUMA domains": (
        "h200x4",
        lambda s: s["node_types"]["h200x4"]["numa"].append({"id": 1, "cpus": "63-95"}),
        "node_types.h200x4.numa[1].cpus",
        "CPU 63 is in NUMA domains 0 and 1",
    ),
    "a partition twice": (
        "mi300x",
        lambda s: s["partitions"].append(s["partitions"][0]),
        "partitions[2].name",
        "duplicate partition 'spx'",
    ),
    "a misspelt node type": (
        "mi300x",
        lambda s: s["partitions"][0].update(node_type="spxx"),
        "partitions[0].node_type",
        "did you mean 'spx'?",
    ),
    "reference outside its band": (
        "p5",
        lambda s: s["references"][2].update(gb_per_s=150),
        "references[2].gb_per_s",
        "is outside the band",
    ),
}


@cases("case", BREACHES)
def test_lint_refuses(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, change, key, rule = BREACHES[case]
    file = edit(alone(tmp_path, name, monkeypatch), name, change)
    assert main(["site", "lint", name]) == 1
    printed = capsys.readouterr().out
    finding = next(line for line in printed.splitlines() if rule.lower() in line.lower())
    assert finding.startswith(str(file))
    assert key in finding
    assert re.search(r"; \w", finding)  # what to do


def test_lint_of_all_names_each_site_once(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(copy, "p5", lambda s: s.update(colour="green"))
    assert main(["site", "lint", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [finding["site"] for finding in findings] == ["p5"]


def test_a_latency_is_held_against_its_own_band(copy: Path) -> None:
    good = {"bench": "osu_latency", "us": 7.9, "bytes": 8, "source": "h200x2/osu_tuning.tsv"}
    edit(copy, "h200x4", lambda s: s["references"].append(good))
    assert lint("h200x4") == []


def test_a_site_without_its_configuration_of_reframe(copy: Path) -> None:
    (copy / "p5" / "reframe.py").unlink()
    (finding,) = lint("p5")
    assert "no reframe.py beside site.yaml" in finding.rule
    subprocess.run(finding.hint.partition(": ")[2].split(), check=True)
    assert lint("p5") == []


def test_all_errors_of_the_schema_at_once(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def spoil(site: dict[str, Any]) -> None:
        site["famly"] = site.pop("family")
        site["scheduler"] = "slrum"
        site["partitions"][0]["nods"] = 2
        site["node_types"]["h200x4"]["gpus"]["count"] = "four"
        site["deliveries"][0]["lanes"] = ["ucx-1.41"]

    file = edit(copy, "h200x4", spoil)
    assert main(["site", "show", "h200x4"]) == 2
    lines = capsys.readouterr().err.splitlines()
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
    assert len(lines) == 6, lines
