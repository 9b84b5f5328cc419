# SPDX-License-Identifier: MIT
"""nccl_message_transfer: the test of aws-ofi-nccl, NCCL's plugin for libfabric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.tool import Feature, Programs, Tool, measured
from busbar.expect import NoExpectation
from busbar.expect.expectation import Expectation
from busbar.parse import numbers
from busbar.site.delivery import GPU_STACKS, Delivery
from busbar.site.model import Site


def _declared(site: Site, delivery: Delivery) -> Iterator[str]:
    fast = site.fabric and site.fabric.provider in ("efa", "cxi")
    nccl = "xccl" in delivery.features and GPU_STACKS.get(delivery.stack) == "cuda"
    if fast and nccl and delivery.kind != "wheels":
        yield "ofi-tests"  # they come with the plugin for NCCL, not for RCCL


def _ranks(output: JobOutput) -> int:
    printed = [*output.values("ofi.process", "rank"), *output.values("ofi.completions", "rank")]
    return max(map(numbers.count, printed)) + 1


def _bands(run: Run, reading: Reading) -> Sequence[Expectation]:
    raise NoExpectation("nccl_message_transfer measures nothing")


def _answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    done = set(shown.facts.values("ofi.completions", "rank"))
    if done != {str(rank) for rank in range(launch.ranks)}:
        yield f"messages of {len(done)} of {launch.ranks} ranks came through"


TOOL = Tool(
    benches=("nccl_message_transfer",),
    programs=Programs(names=("nccl_message_transfer",)),
    features={
        "ofi-tests": Feature(
            "the tests of aws-ofi-nccl",
            "`nccl_message_transfer`",
            "aws-ofi-nccl, with its tests",
            "`--prefix DIR`, Spack or modules",
            program="nccl_message_transfer",
        )
    },
    declared=_declared,
    reader=None,  # it prints messages, no table
    bands=_bands,
    answer=_answer,
    checked=measured,
    ranks=_ranks,
    files=("messages.yaml", "causes.yaml", "examples.yaml"),
)
