# SPDX-License-Identifier: MIT
"""Import of files: each kind, twice, in any order, with errors."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from busbar.check.document import document_of
from busbar.check.snapshot import read
from busbar.document import to_json
from busbar.engine.results import Outcome, Result
from busbar.history.importing import parse_lines
from busbar.history.model import Change, HistoryBounds, HistoryKey, NightSeries, Ratio
from busbar.history.read import history, read_series
from busbar.history.record import flat, metric_of
from busbar.history.reframe import bounds
from busbar.verdict import Verdict
from tests.cases import cases
from tests.said import Command, ran

DATA = Path(__file__).parents[1] / "data"
LINE = {
    "time": "2026-01-01T02:00:00Z",
    "site": "alpha",
    "partition": "gpu",
    "node": "n1",
    "check": "xccl",
    "metric": "busbw 16 MiB",
    "unit": "GB/s",
    "value": 100.0,
}


def lines(*changes: dict[str, object]) -> str:
    return "".join(json.dumps({**LINE, **change}) + "\n" for change in changes)


def imported() -> list[NightSeries]:
    """The series of the history."""
    with history() as store:
        return read_series(store)


def test_order_and_duplicates_do_not_matter(tmp_path: Path, busbar: Command) -> None:
    rows = [{"time": f"2026-01-{day:02}T02:00:00Z", "value": day} for day in range(1, 29)]
    rows = rows[::3] + rows[1::3] + rows[2::3]
    file, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    file.write_text(lines(*rows, *rows[:5]) + "\n\n")
    assert busbar("history import", file).status == 0
    other.write_text(lines(*rows[:9], {"time": 1767225600.0, "value": 0.5}))
    assert busbar("history import", other, file).status == 0
    (series,) = imported()
    assert series.readings == 29
    assert series.values.tolist() == [0.75, *range(2, 29)]  # two readings of the first night


def test_what_editors_and_strangers_write(tmp_path: Path, busbar: Command) -> None:
    file = tmp_path / "a.jsonl"
    with_separator = json.dumps({**LINE, "node": "n\u2028\x85"}, ensure_ascii=False)
    file.write_text(f"\ufeff{with_separator}\r\n" + lines({}), encoding="utf-8", newline="")
    assert busbar("history import", file).status == 0
    assert len(imported()) == 2


def test_system_is_another_name_of_site() -> None:
    row = {name: value for name, value in LINE.items() if name != "site"}
    (record,) = parse_lines([json.dumps({**row, "system": "beta", "unknown": [1]})])
    assert record.site == "beta"


@cases(
    ("given", "stored"),
    [
        ((100.0, -0.25, 0.5), HistoryBounds(75.0, 100.0, 150.0)),
        ((100.0, -0.25, None), HistoryBounds(75.0, 100.0)),
        ((0, -0.25, 0.5), HistoryBounds()),
        (("100", -0.25, 0.5), HistoryBounds()),
    ],
)
def test_the_reference_of_reframe_becomes_a_band(given: Any, stored: HistoryBounds) -> None:
    assert bounds(*given) == stored


@cases(
    ("unit", "after", "band", "below"),
    [
        ("GB/s", 9.0, HistoryBounds(10.0), True),
        ("GB/s", 11.0, HistoryBounds(10.0), False),
        ("GB/s", 1.0, HistoryBounds(high=0.5), False),
        ("us", 9.0, HistoryBounds(high=8.0), True),
        ("us", 7.0, HistoryBounds(high=8.0), False),
        ("us", 9.0, HistoryBounds(low=10.0), False),
    ],
)
def test_a_change_leaves_the_band(
    unit: str, after: float, band: HistoryBounds, below: bool
) -> None:
    key = HistoryKey("s", "p", "n1", "c", "m", unit)
    night = dict.fromkeys(("since", "last_before", "found", "before", "score"), 1.0)
    change = Change(key=key, after=after, ratio=Ratio(1.0), worse=True, bounds=band, **night)
    assert change.below_band is below


def nested(depth: int) -> str:
    deep = '{"a":' * depth + "1" + "}" * depth
    return json.dumps(LINE)[:-1] + f', "provenance": {deep}}}'


def report_of(fields: list[object], time: object = 1.7e9) -> str:
    """A report of ReFrame with one reading."""
    case = {"system": "s", "partition": "p", "name": "n", "perfvalues": {"a:b:c": fields}}
    info = {"uuid": "1", "hostname": "h", "time_end_unix": time}
    return json.dumps({"session_info": info, "runs": [{"testcases": [case]}]})


def checked(**keys: object) -> str:
    document = {"schema": "busbar-check/1", "site": "alpha", "verdict": "pass"}
    return json.dumps(document | keys)


FIVE = [1, 2, 3, 4, "u"]
# Content of a file, and what its error says.
REFUSED = [
    *(
        (lines({}, change, {"time": "2026-01-05"}), words)
        for change, words in [
            ({"value": "fast"}, "line 2: value: has the wrong type"),
            ({"time": True}, "line 2: time: has the wrong type"),
            ({"metric": ""}, "line 2: metric"),
            ({"value": None}, "line 2: value"),
            ({"value": float("nan")}, "line 2:"),
            ({"time": "yesterday"}, "line 2: time: 'yesterday' is not ISO 8601"),
            ({"time": -5}, "between the years"),
            ({"time": "2099-01-01"}, "is later than now"),
            ({"metric": 3}, "line 2: metric"),
            ({"provenance": "x"}, "line 2: provenance"),
        ]
    ),
    ("oops\n" + lines({}), "line 1: is not JSON"),
    (nested(700), ""),
    (nested(5000), ""),
    *((text, "") for text in ("", "hello\n", "{", "[1, 2]", '{"a": 1}', "\x00\x01")),
    ('{"session_info": []}', "keys of an unexpected type"),
    ('{"session_info": {"time_end_unix": 1e9}}', "without 'runs'"),
    (report_of([1]), "'a:b:c' has 1 fields, not 5"),
    (report_of(FIVE, time=-5e9), "is not between the years"),
    (report_of(FIVE, time=float("nan")), "is not between the years"),
    (report_of(FIVE, time="soon"), "is not ISO 8601"),
    (checked(time="now", results=[]), "time: 'now' is not ISO 8601"),
    (checked(time="2098-01-01", results=[]), "time: '2098-01-01' is later than now"),
    (checked(time="2026-11-01", results=[{"check": "net"}]), "results.0.verdict: Field required"),
]


def test_a_bad_file_is_one_error_and_good_ones_are_kept(tmp_path: Path, busbar: Command) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text(lines({"node": "n2"}))
    bad = [tmp_path / f"bad{n}" for n in range(len(REFUSED))]
    for file, (content, _) in zip(bad, REFUSED, strict=True):
        file.write_text(content)
    errors = busbar.refuses("", "history import", *bad, good).err.splitlines()
    for file, error, (_, words) in zip(bad, errors, REFUSED, strict=True):
        assert f"{file}: " in error
        assert words in error
    assert [series.key.node for series in imported()] == ["n2"]


def test_what_is_no_file_is_refused(tmp_path: Path, busbar: Command) -> None:
    said = busbar.refuses("", "history import", tmp_path / "missing", tmp_path)
    assert len(said.err.splitlines()) == 2


def test_truth_and_infinity_are_no_readings(tmp_path: Path, busbar: Command) -> None:
    for n, value in enumerate((True, float("inf"), None, "4")):
        (tmp_path / f"{n}.json").write_text(report_of([value, 2, 3, 4, "u"]))
        assert busbar("history import", tmp_path / f"{n}.json").status == 0
    assert not imported()


@cases(
    ("file", "check", "metric", "unit"),
    [
        ("h200x4/nccl_healthy_a.log", "nccl-tests", "busbw", "GB/s"),
        ("h200x4/nccl_all_reduce_single_process.json", "nccl-tests", "busbw", "GB/s"),
        ("h200x4/osu_allreduce_host.log", "osu_allreduce", "latency", "us"),
    ],
)
def test_outputs_of_benchmarks(  # noqa: PLR0917 - one output a row
    file: str, check: str, metric: str, unit: str, busbar: Command, store: Path
) -> None:
    shutil.rmtree(store, ignore_errors=True)
    for _ in range(2):
        line = "history import --site alpha --time 2026-01-01"
        assert busbar(line, DATA / file).status == 0
    found = imported()
    assert {series.key.check for series in found} == {check}
    assert any(metric in series.key.metric and series.key.unit == unit for series in found)
    assert sum(series.readings for series in found) == sum(len(s.values) for s in found)


def test_a_performance_log(tmp_path: Path, busbar: Command) -> None:
    log = tmp_path / "xccl.log"
    log.write_text(
        "result|job_completion_time|display_name|job_nodelist|bw_value|bw_unit|bw_ref|"
        "bw_lower_thres|bw_upper_thres\n"
        "pass|2026-01-01T02:00:00|xccl %size=1|n1|99.5|GB/s|100|-0.1|0.1\n"
        "fail|null|xccl|n1|null|GB/s|100|-0.1|0.1\n"
        "result|job_completion_time|display_name|job_nodelist|lat_value|lat_unit\n"
        "pass|2026-01-02T02:00:00|xccl|n1|3.5|us\n"
    )
    converter = Path(__file__).parents[2] / "ci/history/perflogs.awk"
    words = ["awk", "-v", "site=alpha", "-v", "partition=gpu", "-f", converter, log]
    past = tmp_path / "past.jsonl"
    past.write_text(ran(*words, check=True).stdout)
    assert busbar("history import", past).status == 0
    bandwidth, latency = imported()
    assert (bandwidth.key.site, bandwidth.key.partition) == ("alpha", "gpu")
    assert bandwidth.key.check == "xccl"
    assert (bandwidth.bounds.low, bandwidth.bounds.high) == (90.0, pytest.approx(110.0))
    assert (latency.key.metric, latency.values.tolist()) == ("lat", [3.5])
    log.write_text(log.read_text() + "pass|2026-01-02\n")
    done = ran(*words)
    assert (done.returncode, done.stderr) == (1, f"{log}:6: has 2 fields, its header 6\n")


def test_jobs_of_one_check_keep_what_they_had(tmp_path: Path, busbar: Command) -> None:
    drivers = {"n1,n2": "570", "n3,n4": "580"}
    outcomes = [
        Outcome(
            "net",
            "ucx-1.14",
            (Result("net", Verdict.UNJUDGED, where, metric="bandwidth", bytes=8, gb_per_s=1.5),),
            provenance={"nodes": where, "driver": driver, "kernel": "6.1"},
        )
        for where, driver in drivers.items()
    ]
    document = document_of("alpha", "ucx-1.14", outcomes)
    file = tmp_path / "results.json"
    file.write_text(json.dumps(to_json(document)))
    assert document.provenance == {"net": {"kernel": "6.1"}}
    assert busbar("history import", file).status == 0
    with history() as store:
        facts = store.provenance()
        found = {each.key.node: facts[int(each.provenance[0])] for each in read_series(store)}
    assert found == {
        where: {"nodes": where, "driver": driver, "kernel": "6.1"}
        for where, driver in drivers.items()
    }


def test_results_of_an_older_version_are_imported_as_a_report_shows_them(
    tmp_path: Path, busbar: Command
) -> None:
    """They lack keys; a reading without one has no share, lane, band..."""
    row = {"check": "net", "verdict": "unjudged", "where": "n1", "metric": "bandwidth"}
    row |= {"bytes": 8, "gb_per_s": 1.5}
    document = {"site": "alpha", "time": "2026-11-01T00:00:00+00:00", "verdict": "unjudged"}
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"schema": "busbar-check/1", **document, "results": [row]}))
    (outcome,) = read(file).outcomes
    assert outcome.results[0].gb_per_s == 1.5
    assert busbar("history import", file).status == 0
    (series,) = imported()
    assert (series.key.node, series.key.check, series.values.tolist()) == ("n1", "net", [1.5])


def test_provenance_is_flat_and_has_no_secrets() -> None:
    facts = flat(
        {
            "driver": "570.86",
            "firmware": None,
            "commit": "d2" * 20,
            "image": {"digest": "sha256:" + "ab" * 32},
            "nodes": ["n1", "n2"],
            "lock": {"libfabric": "2.2", "ucx": 1.18},
            "env": {"NCCL_ALGO": "Ring", "HF_TOKEN": "hf_" + "a" * 30, "UCX_API_KEY": "q8Zr"},
        }
    )
    assert facts == {
        "driver": "570.86",
        "commit": "d2" * 6,
        "image.digest": "ab" * 6,
        "nodes": "n1,n2",
        "lock.libfabric": "2.2",
        "lock.ucx": "1.18",
        "env.NCCL_ALGO": "Ring",
    }


SAME = [
    ("memory", "one_core", "one_core 0", None, "memory one_core bandwidth 0 D D 1 KiB"),
    ("osu_bw", "", "0->1", None, "osu_bw bandwidth 0->1 D D 1 KiB"),
    *(
        (
            "xccl",
            "all_reduce",
            f"all_reduce {half}",
            place,
            f"xccl all_reduce bandwidth D D {half} 1 KiB",
        )
        for half, place in (("in place", True), ("out of place", False))
    ),
    ("tool", "tool tcp", "tool tcp", None, "tool tcp bandwidth D D 1 KiB"),
]


@cases(("bench", "operation", "pair", "half", "words"), SAME)
def test_a_metric_says_nothing_twice(
    bench: str, operation: str, pair: str, half: bool | None, words: str
) -> None:
    row: Any = SimpleNamespace(bench=bench, operation=operation, in_place=half)
    assert metric_of("bandwidth", pair, "D D", 1024, row) == words


def test_a_copy_of_an_output_is_the_same_output(tmp_path: Path, busbar: Command) -> None:
    text = (DATA / "p4d-efa/all_reduce_2x8.log").read_text()
    for name, time, new in (("a.log", 1.7e9, True), ("b.log", 1.8e9, False)):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (time, time))
        said = busbar("history import --site alpha", tmp_path / name)
        assert said.status == 0
        assert ("b.log: output of a benchmark, nothing new" in said.out) is not new
    for more in ("--site beta", "--site alpha --time 2026-01-01"):
        said = busbar(f"history import {more}", tmp_path / "b.log")
        assert (said.status, "nothing new" in said.out) == (0, False)
