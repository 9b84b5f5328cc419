# SPDX-License-Identifier: MIT
"""A site with NVIDIA, AMD and CPU partitions: each has the environments that fit its nodes."""

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

from .edited import edit

TRIO = Path(__file__).parents[1] / "data/sites/trio"


def changed(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    shutil.copytree(TRIO, tmp_path / "trio")
    edit(tmp_path, "trio", change)
    return tmp_path / "trio"


def stacks(config: dict[str, Any], tmp_path: Path) -> dict[str, list[tuple[str, str]]]:
    """Names and stacks of the environments of each partition, as ReFrame reads them."""
    with temp_runtime(write(config, tmp_path), "trio"):
        return {
            partition.name: [
                (environ.name, Environment.from_reframe(environ).stack)
                for environ in partition.environs
            ]
            for partition in runtime().system.partitions
        }


def test_each_partition_has_what_fits_its_nodes(tmp_path: Path) -> None:
    assert lint(TRIO) == []
    assert stacks(configuration(TRIO, Choice(declared=True)), tmp_path) == {
        "h100": [("modules-openmpi", "cuda")],
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
        [("modules-openmpi", "rocm")],
        [],
    ]
    why = [p["extras"]["no_environment"] for p in config["systems"][0]["partitions"]]
    assert why[0].startswith("no CUDA toolkit found")
    assert why[1] == ""
    assert "spack-ucx-1_14: no Spack environment is installed" in why[2]
    monkeypatch.delenv("LOADEDMODULES")
    with pytest.raises(BusbarError, match=r"modules-openmpi: no module is loaded"):
        configuration(site, Choice())


def test_variables_are_those_of_the_partition() -> None:
    site = sites.load(TRIO)
    names = {name: set(sites.environment(site.only(name))) for name in ("h100", "mi300", "cpu")}
    assert len({frozenset(each) for each in names.values()}) == 3
    assert site.only("mi300").node.gpus == site.node_type("mi300").gpus
    assert site.only("mi300").directory == site.directory


def own(site: dict[str, Any], partition: int, *deliveries: dict[str, Any]) -> None:
    site["partitions"][partition]["deliveries"] = list(deliveries)


HOST = {"kind": "wheels", "stack": "host"}


NO_HOST = "no delivery fits partition cpu: its nodes need stack host"
NO_USE = "stack host, but every partition has a delivery for its GPUs"
TWICE = "is called modules-openmpi as another delivery of partition h100"
ROCM = {"kind": "wheels", "stack": "rocm"}
H100, CPU = "deliveries[0].stack", "deliveries[2].stack"


@cases(
    ("change", "findings"),
    [
        (lambda s: s["deliveries"].pop(), {"partitions[2].node_type": NO_HOST}),
        (
            lambda s: s["partitions"].pop(1),
            {"deliveries[1].stack": "stack rocm, but the GPUs need cuda"},
        ),
        (lambda s: s["partitions"].pop(), {CPU: NO_USE}),
        (
            lambda s: s["deliveries"].append({**s["deliveries"][0], "features": ["osu"]}),
            {"deliveries[3]": TWICE},
        ),
        (
            lambda s: own(s, 0, HOST, ROCM),
            {
                H100: "stack cuda, but the GPUs need rocm",
                "partitions[0].deliveries[1].stack": "stack rocm, but the GPUs need cuda",
            },
        ),
        (lambda s: own(s, 2, HOST), {CPU: "stack host, but every partition"}),
        (
            lambda s: [own(s, 0, HOST), own(s, 1, HOST), own(s, 2, HOST)],
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
