# SPDX-License-Identifier: MIT
"""Results on disk: killed writers, full disks, what a resumed sweep still measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar.cluster.measure.store import CannotWriteError, Store
from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair, read_results

PLAN = [PlannedPair(1, "a", "b"), PlannedPair(2, "a", "c"), PlannedPair(3, "b", "c")]


def row(
    pair: PlannedPair, state: PairState = PairState.OK, nic: str | None = None
) -> MeasuredPair:
    rate = 1.5 if state is PairState.OK else None
    return MeasuredPair(pair.round, pair.a, pair.b, nic, rate, state)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.begin(PLAN)
    return made


def resumed(directory: Path) -> list[PlannedPair]:
    """What another process still measures."""
    other = Store(directory)
    return [pair for pair in other.resume() if not other.finished(pair)]


@pytest.mark.parametrize("tail", ["", '{"round": 2, "a"', '{"round": 2, "a": "a", "b": "c"}'])
def test_a_killed_writer_costs_the_line_that_it_wrote(
    store: Store, tmp_path: Path, tail: str
) -> None:
    store.add([row(PLAN[0], nic="eth0"), row(PLAN[0])])
    with store.results_file.open("a") as file:
        file.write(tail)
    assert resumed(tmp_path) == PLAN[1:]
    assert len(read_results(store.results_file).rows) == 2


def test_pairs_that_were_not_started_are_measured_again(store: Store, tmp_path: Path) -> None:
    store.add([row(PLAN[0]), row(PLAN[1], PairState.SKIPPED), row(PLAN[2], PairState.TIMEOUT)])
    assert resumed(tmp_path) == [PLAN[1]]
    assert [each.state for each in read_results(store.results_file).rows] == ["ok", "timeout"]


def test_one_nic_alone_does_not_finish_a_pair(store: Store, tmp_path: Path) -> None:
    store.add([row(PLAN[0], nic="eth0")])
    assert resumed(tmp_path) == PLAN


def test_a_sweep_that_was_killed_before_its_first_round_resumes(
    store: Store, tmp_path: Path
) -> None:
    assert resumed(tmp_path) == PLAN
    store.results_file.unlink()
    assert resumed(tmp_path) == PLAN


def test_a_full_disk_keeps_what_was_written(store: Store, tmp_path: Path) -> None:
    store.add([row(PLAN[0])])
    kept = store.results_file
    store.results_file = Path("/dev/full")
    with pytest.raises(
        CannotWriteError, match="No space left on device; earlier results are kept"
    ):
        store.add([row(PLAN[1])])
    assert len(read_results(kept).rows) == 1
    assert not store.finished(PLAN[1])
