# SPDX-License-Identifier: MIT
"""Changes of simulated nights: found in time, never by one slow night, explained by what differed.

`tests/bench/change_points.py` measures the rates on many years; these are the rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from busbar.commands import history
from busbar.history.events import Changes, changes_of, differences, find_events
from busbar.history.model import Change, Difference, HistoryKey, NightSeries, Ratio, ratio_of
from busbar.history.statistic import Array, Noise, common_noise, scan
from tests.cases import cases
from tests.said import Command

FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
DAY_S = 86400


def quiet(nights: int, seed: int = 0) -> Array:
    return 100 * (1 + 0.01 * np.random.default_rng(seed).normal(size=nights))


def series(values: Sequence[float] | Array, unit: str = "GB/s") -> NightSeries:
    days = np.arange(len(values))
    return NightSeries(
        HistoryKey("alpha", "gpu", "n1", "xccl", "busbw", unit),
        FIRST.timestamp() + days * DAY_S,
        np.asarray(values, dtype=np.float64),
        np.zeros(len(values), dtype=np.int64),
        days,
    )


@cases("factor", [0.95, 1.05, 0.8, 2.0])
def test_a_step_is_found_at_its_night_and_soon(factor: float) -> None:
    values = quiet(200)
    values[150:] *= factor
    (change,) = changes_of(series(values))
    assert change.since == FIRST.timestamp() + 150 * DAY_S
    assert (change.found - change.since) / DAY_S < 5
    assert change.worse == (factor < 1)
    assert change.ratio.low is not None
    assert change.ratio.high is not None
    assert change.ratio.low < factor < change.ratio.high
    (longer,) = changes_of(series(values, "us"))
    assert longer.worse == (factor > 1)


def test_nights_decide_as_they_come() -> None:
    values = quiet(200)
    values[150:] *= 0.95
    (whole,) = changes_of(series(values))
    night = round((whole.found - FIRST.timestamp()) / DAY_S)
    assert not changes_of(series(values[:night]))
    assert len(changes_of(series(values[: night + 1]))) == 1


def test_slow_nights_and_weeks_are_no_change() -> None:
    for slow, night in product((0.0001, 0.5, 0.9, 0.97, 1.5, 100), (30, 60, 100, 195, 199)):
        values = quiet(200, seed=night)
        values[night] *= slow
        assert not changes_of(series(values)), (slow, night)
    values = quiet(365)
    values[10::13] *= 0.9
    assert not changes_of(series(values))
    values = quiet(365)
    values[np.arange(365) % 7 >= 5] *= 0.97
    assert not changes_of(series(values))


def test_slow_nights_do_not_hide_a_step() -> None:
    for slow in range(150, 155):
        values = quiet(200, seed=slow)
        values[10:150:31] *= 0.9
        values[150:] *= 0.96
        values[slow] *= 0.9
        (change,) = changes_of(series(values))
        assert (change.found - change.since) / DAY_S <= 5


@cases("seed", range(5))
def test_a_link_is_halved_after_few_nights_with_outliers(seed: int) -> None:
    values = 100 + 0.3 * np.random.default_rng(seed).standard_t(3, 30)
    values[[7, 14]] = 97, 94
    values[20:] /= 2
    (change,) = changes_of(series(values[:25]))
    assert change.since == FIRST.timestamp() + 20 * DAY_S
    assert not changes_of(series(values[:24]))


@cases("correlation", [0.5, 0.8])
def test_nights_that_follow_each_other_are_no_change(correlation: float) -> None:
    noise = Noise(known=True, correlation=correlation)
    for seed in range(4):
        walk = np.random.default_rng(seed).normal(size=365)
        for night in range(1, 365):
            own = (1 - correlation**2) ** 0.5 * walk[night]
            walk[night] = correlation * walk[night - 1] + own
        values = 100 * (1 + 0.01 * walk)
        assert not changes_of(series(values), noise=noise)
        if correlation > 0.5:
            continue
        values[180:] *= 0.92
        (change,) = changes_of(series(values), noise=noise)
        assert change.since == FIRST.timestamp() + 180 * DAY_S
        assert (change.found - change.since) / DAY_S < 7


def test_a_repair_is_a_change_of_its_own() -> None:
    values = quiet(200)
    values[100:112] *= 0.9
    worse, better = changes_of(series(values))
    assert (worse.worse, better.worse) == (True, False)
    assert (better.since - worse.since) / DAY_S == 12


def test_a_week_does_not_hide_a_step() -> None:
    for seed in range(8, 12):
        values = quiet(250, seed)
        values[np.arange(250) % 7 >= 3] *= 0.98
        values[200:] *= 0.98
        assert len(changes_of(series(values))) == 1, seed


def test_two_slow_nights_beside_others_are_no_change_where_nights_are_slow_at_times() -> None:
    for seed in (0, 2, 4, 5, 6, 7, 9):
        values = quiet(200, seed)
        values[10:150:31] *= 0.9
        values[150:154] = 98.5, 95.5, 98.5, 95.5
        assert not changes_of(series(values)), seed


@cases("values", [[], [1.0], [100.0] * 300, [0.0] * 100, [100.0, 100.1] * 100, list(range(3))])
def test_series_without_noise_have_no_change(values: list[float]) -> None:
    assert not scan(np.array(values), np.arange(len(values))).score.any() or not changes_of(
        series(values)
    )


def test_what_series_have_in_common() -> None:
    rng = np.random.default_rng(1)
    days = [np.arange(200)] * 20
    noise = common_noise([quiet(200, seed) for seed in range(20)], days)
    assert (noise.known, noise.correlation, noise.heavy, noise.far) == (True, 0.0, False, False)
    slow = [quiet(200, seed) * (1 - 0.1 * (rng.random(200) < 0.03)) for seed in range(20)]
    assert common_noise(slow, days).far
    walk = [100 + np.convolve(rng.normal(size=205), 0.5 ** np.arange(6), "valid") for _ in days]
    assert common_noise(walk, days).correlation == pytest.approx(0.5, abs=0.06)
    assert not common_noise(slow[:5], days[:5]).known


def test_the_interval_is_that_of_the_ranks() -> None:
    # 4 and 4 readings: of 70 orders, one has U = 0 and one has U = 1, so 1/70 is left out at each
    # end and nothing more.
    of_eight = ratio_of(np.full(4, 2.0), np.array([4.0, 5, 6, 7]))
    assert (of_eight.low, of_eight.value, of_eight.high) == pytest.approx((2, 2.75, 3.5))
    assert ratio_of(np.ones(3), np.ones(100)) == Ratio(1)
    assert ratio_of(np.zeros(9), np.ones(9)) == Ratio(np.inf)
    assert ratio_of(np.ones(9), np.array([0.0] * 5 + [1] * 4)) == Ratio(0)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = ratio_of(rng.lognormal(0, 0.1, 8), rng.lognormal(0.05, 0.1, 9))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= np.exp(0.05) <= found.high
    assert 0.92 <= covered / 400 <= 0.985


@cases("seed", range(20))
def test_an_interval_has_its_ratio_inside(seed: int) -> None:
    # That of both medians is outside for groups like these.
    rng = np.random.default_rng(seed)
    old = np.where(np.arange(41) < 21, 1.0, 10.0) * rng.lognormal(0, 1e-3, 41)
    new = np.where(np.arange(41) < 20, 1.0, 10.0) * rng.lognormal(0, 1e-3, 41)
    found = ratio_of(old, new)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    assert not found.low <= np.median(new) / np.median(old) <= found.high


def nights(directory: Path, facts: Mapping[str, object], moved: Mapping[str, object]) -> Path:
    """Write 160 nights of 4 nodes; n3 is slower from night 120 on, with ``moved``."""
    step, count = 120, 160
    rng = np.random.default_rng(7)
    rows = []
    for night in range(count):
        for node in range(4):
            after = node == 3 and night >= step
            provenance = {
                **facts,
                **(moved if after else {}),
                "firmware.bmc": str(night >= step),  # changed just then, of all nodes
                "kernel": f"6.1.{night // 30}",  # changed before, and then
                "jobid": str(night),
                "lock": {"libfabric": "2.2" if after else "2.0", "ucx": f"1.{night // 50}"},
            }
            time = FIRST + timedelta(days=night, minutes=float(rng.uniform(0, 50)))
            for metric in ("busbw 1 MiB", "busbw 16 MiB"):
                value = 100 * (1 + 0.01 * rng.normal()) * (0.95 if after else 1)
                row = {"metric": metric, "unit": "GB/s", "value": value, "provenance": provenance}
                place = {"site": "alpha", "node": f"n{node}", "check": "xccl"}
                rows.append({"time": time.isoformat(), **place, **row})
    file = directory / "nights.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_one_night_shows_no_change(tmp_path: Path, busbar: Command) -> None:
    file = nights(tmp_path, {}, {})
    file.write_text(file.read_text().splitlines()[0])
    assert busbar("history import", file).status == 0
    assert busbar("history changes").out.startswith("unjudged: 1 night of at least 24 ")


def test_one_true_difference_among_many(tmp_path: Path, busbar: Command) -> None:
    same = {f"fact{n}": str(n) for n in range(30)}
    file = nights(tmp_path, {**same, "driver": "570.86", "glibc": "2.36"}, {"glibc": "2.36"})
    assert busbar("history import", file).status == 0
    said = busbar("history changes --json")
    (event,) = said.json["events"]
    assert said.status == 1
    assert event["since"][:10] == "2026-05-01"
    assert event["shared"] == ["node n3"]
    assert {change["metric"] for change in event["changes"]} == {"busbw 1 MiB", "busbw 16 MiB"}
    first, second, *others = event["differences"]
    assert first["text"] == "libfabric 2.0 -> 2.2 in the lock"
    assert second["weight"] < first["weight"] / 2
    assert {each["name"]: each["weight"] for each in event["differences"] if each["weight"]} == {
        "lock.libfabric": 1.0,
        "firmware.bmc": 0.3333,
        "kernel": 0.1,
        "jobid": 0.002,
    }
    assert [each["text"] for each in others if each["name"] == "driver"] == ["driver unchanged"]
    assert busbar("history changes --since 2026-06-01").status == 0
    busbar.refuses("", "history changes --site beta")


def test_since_holds_for_each_site() -> None:
    first, second = quiet(200), quiet(200, 1)
    first[150:] *= 0.9
    second[100:] *= 0.9
    early, late = series(second), series(first)
    late = replace(late, key=replace(late.key, site="aaa"))
    found = find_events([late, early], {}, FIRST.timestamp())
    assert [event.changes[0].key.site for event in found] == ["aaa", "alpha"]


def test_better_and_worse_at_once_are_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = quiet(200), quiet(200, 1)
    first[150:] *= 0.9
    second[150:] *= 1.1
    worse, better = series(first), series(second)
    better = replace(better, key=replace(better.key, node="n2"))
    history.changes(Changes.of(find_events([worse, better], {}), [worse, better]))
    assert "1 series worse, 1 series better: all 2 series" in capsys.readouterr().out


def test_a_size_is_one_thing_that_series_share() -> None:
    nights = {f"busbw D D {n} MiB": quiet(200, n) for n in range(9)}
    for seed, metric in enumerate(("busbw D D 1 GiB", "latency H D 1 GiB")):
        nights[metric] = quiet(200, 20 + seed) * np.where(np.arange(200) < 150, 1, 0.9)
    found = [
        replace(series(values), key=replace(series(values).key, metric=metric))
        for metric, values in nights.items()
    ]
    (event,) = find_events(found, {})
    assert event.shared == ("metric 1 GiB",)


def test_what_others_have_as_well_is_not_what_series_share() -> None:
    """One of the four series of a node moved."""
    nights = {(f"n{n % 4}", f"m{n}"): quiet(200, n) for n in range(16)}
    nights["n0", "m0"][150:] *= 0.9
    found = [
        replace(series(values), key=replace(series(values).key, node=node, metric=metric))
        for (node, metric), values in nights.items()
    ]
    (event,) = find_events(found, {})
    assert event.shared == ("metric m0",)


def test_facts_that_changed_at_once_are_ranked_by_what_moves_bytes() -> None:
    kinds = {"driver": 1.0, "lock.libfabric": 1.0, "kernel": 0.9, "lock.zlib": 0.7, "bios": 0.6}
    kinds["commit"] = 0.5
    days = np.arange(40)
    series = [
        NightSeries(
            HistoryKey("alpha", "", f"n{number}", "check", "busbw", "GB/s"),
            *(days * DAY_S * 1.0, np.ones(40), 1 + (days >= 20), days),
        )
        for number in range(3)
    ]
    moved = [cast("Change", SimpleNamespace(key=each.key)) for each in series]
    facts = {number: dict.fromkeys(kinds, f"version {number}") for number in (1, 2)}
    found = differences(moved, 20.0 * DAY_S, series, facts)
    assert [(each.name, each.weight) for each in found] == [*kinds.items()]
    # What changes again and again, and three nights later, explains less.
    later = {1: {"driver": "1"}, 2: {"driver": "1"}, 3: {"driver": "2"}}
    for each in series:
        each.provenance[23:] = 3
    (late,) = differences(moved, 20.0 * DAY_S, series, later)
    assert late.weight == 0.5
    # What did not change explains nothing, and is listed.
    (same,) = differences(
        moved[:1], 20.0 * DAY_S, series[:1], {key: {"os": "1"} for key in (1, 2, 3)}
    )
    assert (same.before, same.after, same.weight) == ("1", "1", 0.0)


@cases(
    ("name", "before", "after", "text"),
    [
        ("lock.libfabric", "2.0", "2.2", "libfabric 2.0 -> 2.2 in the lock"),
        ("env.NCCL_ALGO", "Ring", "Ring", "NCCL_ALGO unchanged"),
        ("lock.ucx", None, "1.18", "ucx not known before in the lock"),
        ("driver", "570", None, "driver not known after"),
        ("driver", None, None, "driver not known"),
    ],
)
def test_a_fact_in_words(name: str, before: str | None, after: str | None, text: str) -> None:
    assert Difference(name, before, after, weight=0.0).text == text
