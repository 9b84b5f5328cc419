# SPDX-License-Identifier: MIT
"""Readings below their band are measured again before a run is called degraded."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from busbar.engine.reading import Reading
from busbar.engine.repeat import confirmed, disagree, only_below_band
from busbar.engine.results import Outcome, Result, result_of
from busbar.engine.verdicts import judge_reading
from busbar.expect.expectation import Expectation
from busbar.verdict import Verdict
from tests.cases import cases, sampled
from tests.said import ran

BAND = Expectation(limit=20, low=8, typical=10, high=12)
# Each run takes the next line of a file, and judges it.
CHECK = """
import reframe as rfm
from busbar.engine.results import Result, result_of
from busbar.engine.verdicts import judge_reading
from busbar.engine.reading import Reading
from busbar.expect.expectation import Expectation
from busbar.verdict import Verdict
from .base import BusbarCheck
from .judging import Judgement

@rfm.simple_test
class reading(BusbarCheck):
    executable = "true"
    prerun_cmds = [
        "head -n 1 {readings} | grep stop && pkill -TERM -of '{command}' && sleep 60",
        "head -n 1 {readings}; sed -i 1d {readings}",
    ]

    def judgement(self, output, errors):
        band = Expectation(limit=20, low=8, typical=10, high=12)
        if output[0] == "wrong":
            failed = Result(self.name, Verdict.FAILED, message="wrong data")
            return Judgement([failed], {{}})
        return Judgement([result_of(
            judge_reading(Reading("bw", 1, float(value)), lambda _: band),
            Result(self.name, Verdict.PASS, pair=str(place)),
        ) for place, value in enumerate(output[0].split())], {{}})
"""


def outcome(*results: Result, **more) -> Outcome:
    return Outcome("matrix", "ucx-1.14", results, "gpu", "spack", "spack", **more)


def reading(value: float, pair: str = "0->1") -> Result:
    judged = judge_reading(Reading("bw", 4 << 20, value), lambda _: BAND)
    return result_of(judged, Result("matrix", Verdict.PASS, pair=pair))


def test_only_readings_below_their_band_are_doubtful():
    wrong = Result("matrix", Verdict.FAILED, message="wrong data")
    way = Result("matrix", Verdict.DEGRADED, message="UCX took tcp")
    impossible = reading(30)
    assert only_below_band(outcome(reading(5), reading(10, "1->0")))
    assert not only_below_band(outcome(reading(10)))
    for worse in (wrong, way, impossible):
        assert not only_below_band(outcome(reading(5), worse))


def test_a_reading_that_was_slow_twice_is_degraded_with_its_cause():
    cause = {"id": "slow-link"}
    first = outcome(reading(5), reading(5, "1->0"), causes=(cause,))
    second = outcome(reading(10), reading(6, "1->0"), causes=(cause,))
    both = confirmed(first, second)
    assert [r.verdict for r in both.results] == ["pass", "degraded"]
    assert both.causes == (cause,)
    (note,) = both.notes
    assert note.id == "not-repeated"
    assert "0->1 4 MiB: 5 GB/s" in note.summary


def test_a_reading_that_is_slow_in_one_run_alone_condemns_nothing():
    cause = {"id": "below-band-unexplained"}
    first = outcome(reading(5), reading(10, "1->0"), causes=(cause,))
    second = outcome(reading(10), reading(6, "1->0"), causes=(cause,))
    both = confirmed(first, second)
    assert both.verdict is Verdict.PASS
    assert both.causes == ()
    assert [r.value for r in both.results] == [10, 10]
    assert "5 GB/s" in both.notes[0].summary
    assert "6 GB/s" in both.notes[0].summary


def test_a_second_run_that_is_clean_clears():
    first = outcome(reading(5), reading(10, "1->0"), causes=({"id": "slow-link"},))
    cleared = confirmed(first, outcome(reading(10), reading(10, "1->0")))
    assert cleared.verdict is Verdict.PASS
    assert cleared.causes == ()
    assert "5 GB/s" in cleared.notes[0].summary


def test_a_reading_that_a_tool_repeats_is_compared_with_itself():
    """As in the cycles of nccl-tests: the second of them must not stand for the first."""
    slow = outcome(reading(5), reading(10))
    assert confirmed(slow, slow).notes == ()
    assert confirmed(slow, outcome(reading(10), reading(6))).notes


def test_each_run_leaves_its_note():
    first = outcome(reading(5), reading(5, "1->0"))
    second = outcome(reading(10), reading(6, "1->0"))
    third = outcome(reading(10), reading(10, "1->0"))
    last = confirmed(confirmed(first, second), third)
    assert last.verdict is Verdict.PASS
    summaries = [note.summary for note in last.notes]
    assert [("0->1" in text, "1->0" in text) for text in summaries] == [
        (True, False),
        (False, True),
    ]


def test_only_a_reading_that_is_slow_in_every_run_condemns():
    slow = (reading(5), reading(5, "1->0"), reading(5, "2->0"))
    fast = (reading(10), reading(10, "1->0"), reading(10, "2->0"))
    first = outcome(slow[0], slow[1], fast[2])
    second = outcome(slow[0], fast[1], slow[2])
    two = confirmed(first, second)
    assert [r.verdict for r in two.results] == ["degraded", "pass", "pass"]
    assert disagree(two)
    assert confirmed(two, outcome(fast[0], slow[1], slow[2])).verdict is Verdict.PASS
    again = confirmed(two, outcome(slow[0], slow[1], fast[2]))
    assert [r.verdict for r in again.results] == ["degraded", "pass", "pass"]
    assert not disagree(confirmed(first, first))


def test_what_is_worse_in_the_second_run_stands():
    failed = outcome(reading(10), Result("matrix", Verdict.FAILED, message="wrong data"))
    assert confirmed(outcome(reading(5)), failed).results == failed.results


def test_a_reading_of_another_node_clears_nothing():
    slow = replace(reading(5), where="n1")
    other = replace(reading(10), where="n2")
    assert confirmed(outcome(slow), outcome(other)) == outcome(slow)


@pytest.fixture
def run(tmp_path, root):
    """Runs a check with these readings: (exit status, document, readings that none has taken)."""
    shutil.copytree(root / "reframe_checks", tmp_path / "checks")
    left, check = tmp_path / "readings", tmp_path / "checks" / "reading.py"
    command = f"busbar check --json --site local --output {tmp_path / 'out'}"
    check.write_text(CHECK.format(readings=left, command=command))

    def busbar_check(readings, *options):
        left.write_text("".join(f"{value}\n" for value in readings))
        done = ran(
            *(Path(sys.executable).with_name("busbar"), "check", "--json", "--site", "local"),
            *("--output", tmp_path / "out", "-c", check, *options),
        )
        return done.returncode, json.loads(done.stdout), left.read_text().split()

    return busbar_check


@pytest.mark.run
@sampled(
    3,
    ("readings", "options", "after"),
    [
        (("5", "10"), (), ("pass", True, 0)),
        (("5", "6"), (), ("degraded", False, 0)),
        (("5 5 10", "5 10 5", "10 5 5"), (), ("pass", True, 0)),
        (("5 5 10", "5 10 5", "5 10 10"), (), ("degraded", True, 0)),
        (("5 10", "10 5"), (), ("pass", True, 0)),
        (("5", "wrong"), (), ("failed", False, 0)),
        (("10", "5"), (), ("pass", False, 1)),
        (("5", "10"), ("--max-retries", "0"), ("degraded", False, 1)),
        (("5", "6", "10"), ("--max-retries", "2"), ("pass", True, 0)),
    ],
)
def test_a_run(run, readings, options, after):
    verdict, noted, unread = after
    status, document, left = run(readings, *options)
    assert document["verdict"] == verdict, document
    assert status == (verdict != "pass")
    assert ("not-repeated" in {note["id"] for note in document["notes"]}) == noted
    assert len(left) == unread


@pytest.mark.run
def test_an_interrupted_repetition_condemns_nothing(run):
    status, document, left = run(("5", "stop"))
    assert (status, left) == (143, ["stop"])
    (row,) = (row for row in document["results"] if row["metric"])
    assert (row["verdict"], document["verdict"]) == ("unknown", "unknown")
    assert [note["id"] for note in document["notes"]] == ["not-repeated"]
    assert document["causes"] == []


@pytest.mark.run
def test_what_was_right_in_another_partition_is_not_run_again(run, root, tmp_path):
    site = tmp_path / "local"
    site.mkdir()
    facts, config = root / "site/local/site.yaml", root / "site/local/reframe.py"
    one = "  - name: host\n    node_type: host\n    launcher: mpirun\n"
    text = facts.read_text()
    assert one in text
    (site / "site.yaml").write_text(text.replace(one, one + one.replace("name: host", "name: b")))
    shutil.copy(config, site)
    _, document, left = run(("5", "10", "10", "5"), "--site", site)
    assert [row["gb_per_s"] for row in document["results"]] == [10, 10]
    assert left == ["5"]


def busy(value: float) -> Result:
    """A slow reading that other programs account for."""
    return replace(reading(value), verdict=Verdict.UNKNOWN)


@cases(
    ("first", "second", "verdict"),
    [
        (reading(5), busy(5), "degraded"),  # slow without others, so the machine is slow
        (busy(5), reading(5), "degraded"),
        (busy(5), busy(6), "unknown"),
        (busy(5), reading(10), "pass"),
        (reading(5), reading(10), "pass"),
    ],
)
def test_load_in_one_run_does_not_excuse_the_other(first, second, verdict):
    assert only_below_band(outcome(first))
    assert confirmed(outcome(first), outcome(second)).verdict == verdict
