# SPDX-License-Identifier: MIT
"""The first inputs of each target; ``make fuzz`` runs a million."""

from __future__ import annotations

import pytest

from tests.cases import some
from tests.fuzz.__main__ import failure
from tests.fuzz.inputs import corpus
from tests.fuzz.targets import TARGETS

FEW = 20


@pytest.mark.parametrize("name", TARGETS)
def test_altered_inputs(name: str) -> None:
    assert [why for number in range(FEW) if (why := failure(name, number))] == []


@pytest.mark.parametrize("name", TARGETS)
def test_recorded_and_crashing_inputs(name: str) -> None:
    seeds = corpus("tests/fuzz/crashes")
    assert len(seeds) > 10
    for data in some(seeds, 3):
        TARGETS[name].call(data)
