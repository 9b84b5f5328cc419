# SPDX-License-Identifier: MIT
"""Judge what NCCL's Inspector recorded of a job: each collective with the times of its ranks.

The time of an operation on a rank has the wait for the last rank in it: its shortest time over the
ranks is the transfer, the rest is waiting. Both are compared with the job's own past only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, groupby, islice
from statistics import median
from typing import Any

from busbar.engine.reading import Cause, Evidence
from busbar.explain.catalog import CAUSES
from busbar.job.evidence import LIMIT
from busbar.job.judge import JobAnswer, headline_of
from busbar.parse import numbers
from busbar.robust import least_of
from busbar.units import format_bytes
from busbar.verdict import Verdict

Series = tuple[str, str, int]
"""Communicator, collective, bytes."""


@dataclass(frozen=True)
class _Window:
    """The operations of one kind in ten minutes: medians, and who came last how often."""

    start: float
    transfer_us: float
    waited_us: float
    last: int
    share: float


def _records(lines: Iterable[str]) -> Iterator[tuple[Series, int, int, str, float, float]]:
    """Yield series, number, rank, host, seconds and us; a header holds until the next one."""
    head: Any = {}
    meta: Any = {}
    for line in lines:
        # A line that the job is still writing, or one of another program.
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            row = numbers.load_json(line)
            head, meta = row.get("header", head), row.get("metadata", meta)
            if perf := row.get("coll_perf"):
                counts = perf["coll_msg_size_bytes"], perf["coll_sn"], head["rank"]
                size, number, rank = map(numbers.json_whole, counts)
                times = meta["dump_timestamp_us"], perf["coll_exec_time_us"]
                at, us = map(numbers.json_real, times)
                series = (str(head["id"])[:60], str(perf["coll"])[:60], size)
                yield series, number, rank, str(meta["hostname"])[:60], at / 1e6, us


def judge_inspector(name: str, files: Iterable[Iterable[str]]) -> JobAnswer:
    """Return what the records of all ranks of a job tell of its past."""
    found: dict[Series, dict[int, dict[int, tuple[float, float]]]] = {}
    hosts: dict[int, str] = {}
    rows = chain.from_iterable(map(_records, files))
    for series, number, rank, host, at, us in islice(rows, LIMIT.most_records):
        if us > 0:
            found.setdefault(series, {}).setdefault(number, {})[rank] = (at, us)
            hosts[rank] = host
    whole = {s: [r for r in rows.values() if len(r) > 1] for s, rows in found.items()}
    causes = [c for s, rows in whole.items() for c in _judged(s, list(_windows(rows)), hosts)]
    operations = sum(map(len, whole.values()))
    text = f"{operations} collectives were recorded by two ranks and more"
    verdict = Verdict.PASS if operations else Verdict.UNJUDGED
    if causes:
        verdict, text = Verdict.DEGRADED, headline_of(causes)
    nodes = tuple(sorted({*hosts.values()}))
    return JobAnswer(job=name, verdict=verdict, headline=text, causes=tuple(causes), nodes=nodes)


def _windows(rows: Sequence[dict[int, tuple[float, float]]]) -> Iterator[_Window]:
    timed = sorted(rows, key=lambda ranks: max(at for at, _ in ranks.values()))
    for key, group in groupby(timed, lambda r: max(at for at, _ in r.values()) // LIMIT.window_s):
        times = [{rank: us for rank, (_, us) in ranks.items()} for ranks in group]
        if len(times) >= LIMIT.fewest_operations:
            lasts = Counter(min(each, key=each.__getitem__) for each in times)
            last, often = lasts.most_common(1)[0]
            transfer = median(min(each.values()) for each in times)
            waited = median(max(each.values()) - min(each.values()) for each in times)
            yield _Window(key * LIMIT.window_s, transfer, waited, last, often / len(times))


def _judged(
    series: Series, windows: Sequence[_Window], hosts: Mapping[int, str]
) -> Iterator[Cause]:
    if len(windows) < 3:
        return
    middle, least = least_of([1 / each.transfer_us for each in windows], LIMIT.deviations)
    what = f"{series[1]} of {format_bytes(series[2])} in communicator {series[0]}"
    usual = median(each.waited_us for each in windows)

    def kind(each: _Window) -> int | None:
        """Return -1 for a slow window, the rank that others waited for, or None."""
        if 1 / each.transfer_us < min(least, middle / LIMIT.longer):
            return -1
        late = each.waited_us >= max(LIMIT.waited_for * each.transfer_us, 2 * usual)
        return each.last if late and each.share >= LIMIT.comes_last else None

    for found, group in groupby(windows, kind):
        part = list(group)
        if found is None or len(part) < 2:
            continue
        ends = (part[0].start, part[-1].start + LIMIT.window_s)
        time = " to ".join(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in ends)
        if found < 0:
            longer = median(each.transfer_us for each in part) * middle
            text = f"{what} took {longer:.2f} times as long as usual, {time} UTC"
            id_, host = "below-band-unexplained", "all ranks"
        else:
            waited = median(each.waited_us for each in part) / 1e3
            host = hosts.get(found, "")
            text = f"rank {found} on {host} came last, and others waited {waited:.3g} ms for it in"
            text, id_ = f"{text} each {what}, {time} UTC", "rank-late"
        details = {"ranks": [found] if found >= 0 else [], "start": ends[0], "end": ends[1]}
        yield Cause(id_, "likely", text, (Evidence(host, 1, text),), CAUSES[id_].remedy, details)
