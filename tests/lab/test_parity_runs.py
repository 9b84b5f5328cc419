# SPDX-License-Identifier: MIT
"""An image against the wheels that it was built from, on the same node and in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .checking import check, local_site, slurm_site
from .common import Run

pytestmark = pytest.mark.lab

PARITY = ("-n", "container_parity", "-S", "container_parity.sizes=1M")


def rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The comparisons; both pairs of two ranks have one."""
    found = [row for row in document["results"] if row["metric"] == "bandwidth"]
    assert [row["pair"] for row in found] == ["0->1", "1->0"], document
    return found


def test_the_same_wheels_are_as_fast_in_an_image(sif: Path, tmp_path: Path) -> None:
    """On a machine with other work the readings may scatter too much; they never say slower."""
    more = ("-S", "container_parity.repetitions=6")
    document = check(local_site(tmp_path), sif, *PARITY, *more)
    assert {row["verdict"] for row in rows(document)} <= {"pass", "unknown"}
    assert document["verdict"] in {"pass", "unknown"}
    assert document["delivery"] == "wheels"
    assert [note["id"] for note in document["notes"]].count("container-parity") == 1
    assert not document["causes"]


def test_a_slow_image_fails_with_the_layer_named(without_cma: Path, tmp_path: Path) -> None:
    """UCX copies twice where the kernel's own copy is missing; the data is right."""
    more = ("-S", "container_parity.repetitions=6")
    document = check(local_site(tmp_path), without_cma, *PARITY, *more)
    assert {row["verdict"] for row in rows(document)} == {"degraded"}
    first, second = document["causes"]
    assert first["id"] == "deliveries-differ"
    assert (
        "the first layer that differs: UCX modules, libuct_cma.so.0: none in the image"
        in (first["summary"])
    )
    assert second["id"] == "image-slow-path"


@pytest.mark.long
def test_too_few_repetitions_are_no_pass(on_lab: Run, sif: Path, tmp_path: Path) -> None:
    """Under Slurm, both sides started by srun."""
    more = ("-S", "container_parity.repetitions=2")
    document = check(slurm_site(tmp_path), sif, *PARITY, *more, run=on_lab)
    assert {row["verdict"] for row in rows(document)} == {"unknown"}
    assert document["verdict"] == "unknown"
