# SPDX-License-Identifier: MIT
"""A site with H100, A100, MI300X and CPU partitions: each has what fits its nodes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reframe.core.runtime import runtime, temp_runtime

from busbar import site as sites
from busbar.delivery.choice import Choice
from busbar.delivery.environment import Environment
from busbar.delivery.reframe import configuration, write
from busbar.errors import BusbarError
from busbar.expect.lint import lint
from tests.cases import cases

from .edited import edit, put

MIXED = Path(__file__).parents[1] / "data/sites/mixed"


def changed(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    shutil.copytree(MIXED, tmp_path / "mixed")
    edit(tmp_path, "mixed", change)
    return tmp_path / "mixed"


def stacks(config: dict[str, Any], tmp_path: Path) -> dict[str, list[tuple[str, str]]]:
    """Names and stacks of the environments of each partition, as ReFrame reads them."""
    with temp_runtime(write(config, tmp_path), "mixed"):
        return {
            partition.name: [
                (environ.name, Environment.from_reframe(environ).stack)
                for environ in partition.environs
            ]
            for partition in runtime().system.partitions
        }


def test_each_partition_has_what_fits_its_nodes(tmp_path: Path) -> None:
    assert lint(MIXED) == []
    assert stacks(configuration(MIXED, Choice(declared=True)), tmp_path) == {
        "h100": [("modules-openmpi", "cuda")],
        "a100": [("modules-openmpi", "cuda")],
        "mi300": [("modules-openmpi", "rocm")],
        "cpu": [("modules-openmpi", "host")],
    }


def test_a_partition_without_an_installed_stack_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no CUDA on this machine, and the CPU partition wants a Spack environment."""
    site = changed(tmp_path, lambda s: s["deliveries"][2].update(kind="spack", lanes=["ucx-1.14"]))
    monkeypatch.setenv("LOADEDMODULES", "openmpi")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr("busbar.delivery.programs.Path", lambda *_: tmp_path)
    monkeypatch.delenv("SPACK_ENV_VIEW", raising=False)
    config = configuration(site, Choice())
    assert [names for _, names in stacks(config, tmp_path).items()] == [
        [],
        [],
        [("modules-openmpi", "rocm")],
        [],
    ]
    why = [p["extras"]["no_environment"] for p in config["systems"][0]["partitions"]]
    assert why[0].startswith("no CUDA toolkit found")
    assert why[2] == ""
    assert "spack-ucx-1_14: no Spack environment is installed" in why[3]
    monkeypatch.delenv("LOADEDMODULES")
    with pytest.raises(BusbarError, match=r"modules-openmpi: no module is loaded"):
        configuration(site, Choice())


def test_variables_are_those_of_the_partition() -> None:
    site = sites.load(MIXED)
    names = {
        name: set(sites.environment(site.only(name))) for name in ("h100", "a100", "mi300", "cpu")
    }
    assert len({frozenset(each) for each in names.values()}) == 3
    assert names["h100"] == names["a100"]
    assert site.only("mi300").node.gpus == site.node_type("mi300").gpus
    assert site.only("mi300").directory == site.directory


def own(site: dict[str, Any], partition: int, *deliveries: dict[str, Any]) -> None:
    site["partitions"][partition]["deliveries"] = list(deliveries)


HOST = {"kind": "wheels", "stack": "host"}


NO_HOST = "no delivery fits partition cpu: its nodes need stack host"
NO_USE = "stack host, but every partition has a delivery for its GPUs"
TWICE = "has the same name, modules-openmpi, as another delivery of partition h100"
ROCM = {"kind": "wheels", "stack": "rocm"}
CPU = "deliveries[2].stack"


@cases(
    ("change", "findings"),
    [
        (lambda s: s["deliveries"].pop(), {"partitions[3].node_type": NO_HOST}),
        (
            lambda s: [s["partitions"].pop(2), s["node_types"].pop("mi300x")],
            {"deliveries[1].stack": "stack rocm, but the GPUs need cuda"},
        ),
        (lambda s: [s["partitions"].pop(), s["node_types"].pop("cpu")], {CPU: NO_USE}),
        (
            lambda s: own(s, 0, s["deliveries"][0], s["deliveries"][0] | {"features": ["osu"]}),
            {"partitions[0].deliveries[1]": TWICE},
        ),
        (
            lambda s: own(s, 0, HOST, ROCM),
            {"partitions[0].deliveries[1].stack": "stack rocm, but the GPUs need cuda"},
        ),
        (lambda s: own(s, 3, HOST), {CPU: "stack host, but every partition"}),
        (
            lambda s: [own(s, n, HOST) for n in range(4)],
            dict.fromkeys((f"deliveries[{n}]" for n in range(3)), "no partition uses it"),
        ),
        (lambda s: [own(s, 0, s["deliveries"].pop(0), HOST)], {}),
    ],
)
def test_lint_compares_deliveries_with_partitions(
    change: Callable[[dict[str, Any]], object], findings: dict[str, str], tmp_path: Path
) -> None:
    found = lint(changed(tmp_path, change))
    assert [each.where.rpartition(": ")[2] for each in found] == [*findings]
    for finding, rule in zip(found, findings.values(), strict=True):
        assert finding.rule.startswith(rule)
        assert finding.hint


def pcie(*nics: str) -> list[dict[str, Any]]:
    ends = zip(([0, 1], [2, 3]), nics, strict=True)
    return [{"switches": [{"gpus": gpus, "nics": [nic]}]} for gpus, nic in ends]


H100, A100, MI300X, CPU_NODE = (f"node_types.{n}" for n in ("h100", "a100", "mi300x", "cpu"))
ISLANDS = [{"between": [n, n + 1], "class": "nvlink3", "count": 4} for n in (0, 2)]
CPX = {"compute": "CPX", "memory": "NPS1", "compute_count": 8}
REDUCE = {"bench": "all_reduce", "gb_per_s": 470, "source": "own"}
PAIR = {"bench": "osu_bw", "gb_per_s": 80, "source": "own", "pair": [0, 7]}
OF_H100 = {"kind": "spack", "stack": "cuda", "environment": "cuda-sm_90-local"}
# The key that gets a value, the value, and what the finding says. It is on the key, or below it.
CONTRADICTIONS: dict[str, tuple[str, Any, str]] = {
    "GPU test of CPUs": ("references", [REDUCE | {"partition": "cpu"}], "have no GPUs"),
    "no such partition": ("references", [REDUCE | {"partition": "h200"}], "known: h100, a100"),
    "H100's reading": ("references", [REDUCE | {"partition": "a100"}], "bound of 300 GB/s"),
    "AMD's engine": (
        *("references", [PAIR | {"partition": "h100", "engine": "sdma"}]),
        "unknown engine 'sdma'",
    ),
    "eight GPUs of four": ("references", [PAIR | {"partition": "a100"}], "no GPU 7"),
    "NVLS of AMD": (
        *("references", [REDUCE | {"partition": "mi300", "algo": "nvls"}]),
        "NVLS needs multicast",
    ),
    "mode of another vendor": ("partitions[0].features", ["ib", "cpx"], "do not have cpx"),
    "another network": ("partitions[1].features", ["efa"], "do not have efa"),
    "RoCE of InfiniBand": ("partitions[2].features", ["roce"], "do not have roce"),
    "network without a NIC": ("partitions[3].features", ["ib", "cxi"], "do not have cxi"),
    "nodes without a partition": ("node_types.old", {"cores": 4}, "no partition has such"),
    "another architecture": (f"{A100}.gpus|.arch", "sm_90", "nvlink3 is a link of sm_80"),
    "NVLink4 of A100": (f"{A100}.gpus.links|.all_pairs.class", "nvlink4", "the GPUs are sm_80"),
    "XGMI of H100": (
        *(f"{H100}.gpus.links", {"all_pairs": {"class": "xgmi-mi300x", "count": 1}}),
        "xgmi-mi300x is a link of gfx942",
    ),
    "NVSwitch of AMD": (
        *(f"{MI300X}.gpus.links", {"switched": {"class": "nvlink4", "count": 18}}),
        "the GPUs are gfx942",
    ),
    "C2C of AMD": (f"{MI300X}.gpus.host_link.class", "nvlink-c2c", "is a link of sm_90"),
    "multicast before Hopper": (f"{A100}.gpus.multicast", True, "without a switch"),
    "multicast of AMD": (f"{MI300X}.gpus.multicast", True, "without a switch"),
    "CPX of NVIDIA": (f"{H100}.gpus.partitioning", CPX, "modes of AMD on sm_90"),
    "islands": (f"{A100}.gpus.links", {"pairs": ISLANDS}, "links do not connect all GPUs"),
    "Slingshot by verbs": (
        *(f"{A100}.nics", [{"name": "hsn0", "class": "slingshot-11"}]),
        "verbs does not drive slingshot-11 of nodes of type a100, only cxi does",
    ),
    "EFA by verbs": (
        *(f"{CPU_NODE}.nics", [{"name": "efa0", "class": "efa-200g"}]),
        "verbs does not drive efa-200g of nodes of type cpu, only efa",
    ),
    "a GPU near a NIC twice": (f"{A100}.nics[0].near_gpus", [0, 0], "listed twice"),
    "a NIC near GPUs of no GPUs": (f"{CPU_NODE}.nics[0].near_gpus", [0], "does not have"),
    "a NIC below two switches": (A100 + "|.pcie", pcie("mlx5_0", "mlx5_0"), "several switches"),
    "an image without a runtime": (
        *("partitions[0].deliveries", [{"kind": "image", "stack": "cuda"}]),
        "add containers",
    ),
    "environment of another GPU": (
        *("partitions[1].deliveries", [OF_H100]),
        "is for sm_90, and partition a100 has sm_80",
    ),
    "nodes of two types": ("partitions", None, "gpu8 is in the nodelist of partition h100"),
}


@cases("case", CONTRADICTIONS)
def test_lint_names_each_contradiction(case: str, tmp_path: Path) -> None:
    path, value, text = CONTRADICTIONS[case]

    def change(site: dict[str, Any]) -> None:
        if value is not None:
            put(site, path.replace("|", ""), value)
        names = ("gpu[1-8]", "gpu[8-12]", "amd[1-4]", "cpu[1-9]") if value is None else ()
        for partition, nodes in zip(site["partitions"], names, strict=False):
            partition["nodelist"] = nodes

    found = [str(each) for each in lint(changed(tmp_path, change))]
    key = path.partition("|")[0]
    keys = ("fabric.provider", "partitions") if text.startswith("verbs") else (key,)
    assert any(text in line and any(f": {k}" in line for k in keys) for line in found)
    assert all("; " in line for line in found)
    assert len(found) <= 2
