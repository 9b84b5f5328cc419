# SPDX-License-Identifier: MIT
"""No pair of a sweep with wrong data or a wrong clock has a rate: `faulty_mpi.c` in every rank."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from busbar.cluster.measure.rounds import outcome
from busbar.cluster.measure.step import parse_event
from busbar.cluster.sweep.rows import PairState
from tests.cases import some

from ..cluster.test_pair_program import BIN, pairs, run  # noqa: F401 - pairs is a fixture

pytestmark = pytest.mark.run

FAULTS = (
    *("flip", "half", "drop", "repeat", "swap", "shift", "gap", "words", "past", "ahead", "early"),
    *("lost", "sent", "source", "clock", "late"),
)


@pytest.fixture(scope="module")
def library(root, tmp_path_factory):
    target = tmp_path_factory.mktemp("library") / "faulty_mpi.so"
    source = root / "tests" / "wire" / "faulty_mpi.c"
    command = [BIN / "mpicc", "-shared", "-fPIC", "-O2", source, "-o", target, "-ldl"]
    subprocess.run(command, check=True)
    return target


@pytest.fixture
def state(pairs: Path, library, monkeypatch):  # noqa: F811
    """Measure a pair with a fault, and return its state; it has no rate."""

    def measured(**variables: object) -> PairState:
        fixed = {"LD_PRELOAD": library, "FAULT_EVERY": 7, "FAULT_LEAST": 4096}
        for name, value in (fixed | variables).items():
            monkeypatch.setenv(name, str(value))
        status, lines = run(pairs, "pairs 0:1\npass 7 -1 20\nquit\n")
        assert status == 0
        ends = [[parse_event(json.dumps(line))] for line in lines if line["event"] == "pair"]
        assert len(ends) == 2
        state, rate = outcome(ends, set(), set())
        assert (rate is None) == (state is not PairState.OK)
        return state

    return measured


@pytest.mark.parametrize("fault", some(FAULTS, 2))
def test_a_pair_with_a_fault_has_no_rate(state, fault):
    assert state(FAULT=fault) is (PairState.ERROR if fault == "clock" else PairState.WRONG)


def test_messages_of_an_earlier_run_have_no_rate(state, tmp_path):
    assert state(FAULT="record", FAULT_FILE=tmp_path / "old", BUSBAR_NONCE="1") is PairState.OK
    assert state(FAULT="replay", FAULT_FILE=tmp_path / "old", BUSBAR_NONCE="2") is PairState.WRONG
