# SPDX-License-Identifier: MIT
"""Checks of other suites run on our configuration: its partitions speak ReFrame's words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from busbar.delivery import hardware
from busbar.site.model import ContainerRuntime, NodeType

from .dry import ROOT, reframe

SUITE = Path(__file__).with_name("other_suite.py")


def scripts(site: str, directory: Path, *options: str) -> dict[str, str]:
    """The job scripts of a run, by check."""
    done = reframe(
        *(directory, ROOT / "site" / site / "reframe.py", "--keep-stage-files", *options),
        checks=SUITE,
        dry="--dry-run" in options,
        BUSBAR_DECLARED="" if site == "local" else "1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.parent.name: path.read_text() for path in directory.rglob("rfm_job.sh")}


@pytest.mark.run
@pytest.mark.parametrize(
    ("site", "check", "words"),
    [
        (
            *("h200x4", "nvidia_node"),
            ["GPU_ARCH=sm_90", "GPU_MODEL='NVIDIA H200'", "-np 4 echo cpus=64", "NODE_NUMA=1"],
        ),
        (
            *("mi250x", "amd_node"),
            ["GPU_ARCH=gfx90a", "--ntasks=8", "--cpus-per-task=8", "NODE_CORES=none"],
        ),
    ],
)
def test_gpus(site: str, check: str, words: list[str], tmp_path: Path) -> None:
    found = scripts(site, tmp_path, "--dry-run", "-p", "spack")
    assert set(found) == {"any_node", check, "contained"}
    assert not [word for word in words if word not in found[check]]
    assert "apptainer exec" in found["contained"]
    assert "NODE_RUNTIME=Apptainer" in found["any_node"]


@pytest.mark.run
def test_this_machine(tmp_path: Path) -> None:
    """Really run; the machine has no GPU by its configuration."""
    found = scripts("local", tmp_path, "-r")
    assert set(found) == {"any_node"}
    cpus = len(os.sched_getaffinity(0))
    assert f"echo cpus={cpus}" in found["any_node"]
    assert "NODE_RUNTIME=none" in found["any_node"]


def test_a_node_says_what_its_site_states_and_nothing_else() -> None:
    assert hardware.processor(NodeType()) == {}
    assert hardware.devices(NodeType()) == []
    node = NodeType.model_validate(
        {
            "cores": 8,
            "threads_per_core": 2,
            "sockets": 2,
            "numa": [{"id": 0, "cpus": "0-1,4-5"}, {"id": 1, "cpus": "2-3,6-7"}],
            "nics": [{"name": "a", "class": "roce-400g"}, {"name": "b", "class": "roce-400g"}],
        }
    )
    assert hardware.processor(node) == {
        "num_cpus": 8,
        "num_cpus_per_core": 2,
        "num_cpus_per_socket": 4,
        "num_sockets": 2,
        "topology": {"numa_nodes": ["0x33", "0xcc"]},
    }
    assert hardware.devices(node) == [{"type": "nic", "model": "roce-400g", "num_devices": 2}]


@pytest.mark.parametrize(
    ("runtime", "platforms"),
    [("docker", [{"type": "Docker", "default": True}]), ("podman", []), ("enroot", [])],
)
def test_container_platforms(runtime: str, platforms: list[dict[str, object]]) -> None:
    containers = ContainerRuntime.model_validate({"runtime": runtime})
    assert hardware.container_platforms(containers) == platforms
    assert hardware.container_platforms(None) == []
