# SPDX-License-Identifier: MIT
"""nccl_message_transfer: the test of aws-ofi-nccl, NCCL's plugin for libfabric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from busbar.engine.bands import no_bands
from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.tool import Programs, Tool, measured
from busbar.parse import numbers
from busbar.site.delivery import GPU_STACKS, Delivery
from busbar.site.model import Site


def used(facts: JobOutput) -> dict[str, str]:
    """The versions and the topology file that it names."""
    found = {
        "aws-ofi-nccl": next(facts.values("ofi.init", "version"), ""),
        "libfabric": next(facts.values("ofi.libfabric", "version"), ""),
        "topology_file": PurePosixPath(next(facts.values("ofi.topology", "file"), "")).name,
    }
    return {name: value for name, value in found.items() if value}


def _declared(site: Site, delivery: Delivery) -> Iterator[str]:
    fast = site.fabric and site.fabric.provider in ("efa", "cxi")
    nccl = "xccl" in delivery.features and GPU_STACKS.get(delivery.stack) == "cuda"
    if fast and nccl and delivery.kind != "wheels":
        yield "ofi-tests"  # they come with the plugin for NCCL, not for RCCL


def _ranks(output: JobOutput) -> int:
    printed = [*output.values("ofi.process", "rank"), *output.values("ofi.completions", "rank")]
    return max(map(numbers.count, printed)) + 1


def _answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    done = set(shown.facts.values("ofi.completions", "rank"))
    if done != {str(rank) for rank in range(launch.ranks)}:
        yield f"messages of {len(done)} of {launch.ranks} ranks arrived"


TOOL = Tool(
    benches=("nccl_message_transfer",),
    programs=Programs(names=("nccl_message_transfer",)),
    declared=_declared,
    reader=None,  # it prints messages, no table
    bands=no_bands,
    answer=_answer,
    checked=measured,
    ranks=_ranks,
    started="ofi.process",
    files=("features.yaml", "messages.yaml", "causes.yaml", "examples.yaml"),
)
