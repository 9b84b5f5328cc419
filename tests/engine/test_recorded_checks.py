# SPDX-License-Identifier: MIT
"""Checks recorded on 2 x H200: healthy ones pass, and each fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar import site as sites
from busbar.explain import Explanation, Source, explain

RECORDS = Path(__file__).parents[1] / "data" / "h200x2-checks"

UNIMPEDED = (
    "framework_healthy.log.gz",
    "link_matrix_healthy.log.gz",
    "gpu_aware_healthy.log.gz",
    "memory_healthy.log.gz",
    "link_matrix_beside_idle_process.log.gz",  # which holds memory of a GPU
    "link_matrix_beside_products.log.gz",  # of matrices on GPU 0
    "gpu_aware_beside_copies.log.gz",
    "memory_beside_copies.log.gz",
    "memory_all_cpus_busy.log.gz",
    "framework_all_cpus_busy.log.gz",
)
FAULTS = {
    "framework_nthreads_64.log.gz": ("degraded", "nccl-few-threads"),
    "framework_max_nchannels_2.log.gz": ("degraded", "nccl-few-channels"),
    "framework_p2p_level_loc.log.gz": ("degraded", "nccl-p2p-off"),
    "framework_p2p_disable.log.gz": ("degraded", "nccl-p2p-off"),
    "link_matrix_no_cuda_ipc.log.gz": ("degraded", "ucx-no-gpu-transport"),
    "gpu_aware_no_cuda_ipc.log.gz": ("degraded", "ucx-no-gpu-transport"),
    "fabric_ucx_gpu_no_cuda_ipc.log.gz": ("degraded", "ucx-no-gpu-transport"),
    "framework_one_core.log.gz": ("degraded", "cpu-affinity"),
    "link_matrix_one_core.log.gz": ("degraded", "cpu-affinity"),
    "framework_beside_copies.log.gz": ("unknown", "gpu-busy"),
    "link_matrix_beside_copies.log.gz": ("unknown", "gpu-busy"),
    "link_matrix_all_cpus_busy.log.gz": ("unknown", "cpu-busy"),
}
UNJUDGED = ("fabric_ucx_healthy.log.gz", "fabric_ucx_gpu_healthy.log.gz")
"""Host memory has no band, and without a known run GPUs have only a floor."""


def explained(name: str) -> Explanation:
    """Explain what a check printed, on the links of an H200."""
    (found,) = explain([Source.from_path(RECORDS / name)], site=sites.load("h200x4"))
    return found


@pytest.mark.parametrize("name", UNIMPEDED)
def test_an_unimpeded_check_passes(name: str) -> None:
    found = explained(name)
    assert (str(found.verdict), found.causes) == ("pass", ())


@pytest.mark.parametrize("name", UNJUDGED)
def test_what_has_no_band_is_not_judged(name: str) -> None:
    found = explained(name)
    assert (str(found.verdict), found.causes) == ("unjudged", ())


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str) -> None:
    found = explained(name)
    assert (str(found.verdict), *[cause.id for cause in found.causes]) == FAULTS[name]


def test_every_record_is_read() -> None:
    recorded = {file.name for file in RECORDS.glob("*.gz")}
    assert recorded == {*UNIMPEDED, *UNJUDGED, *FAULTS}
