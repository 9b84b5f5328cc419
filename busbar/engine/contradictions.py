# SPDX-License-Identifier: MIT
"""Numbers of one line that contradict each other: a rate that is not the size over the time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from busbar.parse import events, nccl_tests, osu

_SLACK = 1e-3
"""Share by which numbers may differ beyond the digits that are printed."""
_JSON_DECIMALS = 3


class Signature(NamedTuple):
    """How a collective of nccl-tests shows in its columns, on ``ranks`` ranks."""

    parts: int
    """Size over count times type."""
    factor: float
    """Bus bandwidth over algorithm bandwidth."""
    reduces: bool | None
    rooted: bool | None


def signatures(ranks: int) -> dict[str, Signature]:
    """Return the signature of each collective.

    From nccl-tests' doc/PERFORMANCE.md and the ``*GetCollByteCount`` of each test.
    """
    n, others = ranks, ranks - 1
    return {
        "all_reduce": Signature(1, 2 * others / n, True, False),
        "reduce": Signature(1, 1, True, True),
        "broadcast": Signature(1, 1, False, True),
        "sendrecv": Signature(1, 1, None, False),
        "all_gather": Signature(n, others / n, False, False),
        "reduce_scatter": Signature(n, others / n, True, False),
        "alltoall": Signature(n, others / n, False, False),
        "gather": Signature(n, others / n, False, True),
        "scatter": Signature(n, others / n, False, True),
    }


def _half_unit(decimals: int) -> float:
    return 0.51 * 10.0**-decimals


def agrees(value: float, printed: int, low: float, high: float) -> bool:
    """Whether a number of ``printed`` decimals lies between two that are known as well."""
    unit = _half_unit(printed)
    return low * (1 - _SLACK) - unit <= value <= high * (1 + _SLACK) + unit


def rate_of(nbytes: int, time_us: float, rate: float, decimals: tuple[int, int]) -> bool:
    """Whether ``rate`` in GB/s is the size over the time; ``decimals`` of time and rate."""
    unit = _half_unit(decimals[0])
    if not time_us > 0:
        return not nbytes
    high = nbytes / (time_us - unit) * 1e-3 if time_us > unit else math.inf
    return agrees(rate, decimals[1], nbytes / (time_us + unit) * 1e-3, high)


def product_of(rate: float, factor: float, product: float, decimals: tuple[int, int]) -> bool:
    """Whether ``product`` is ``rate`` times ``factor``; ``decimals`` of rate and product."""
    unit = _half_unit(decimals[0])
    return agrees(product, decimals[1], (rate - unit) * factor, (rate + unit) * factor)


def of_nccl_row(row: nccl_tests.Row, signature: Signature | None) -> Iterator[str]:
    """Yield what is wrong with a row of nccl-tests."""
    for half in (row.out_of_place, row.in_place):
        if half is None:
            continue
        time, algbw, busbw = half.decimals
        if _is_old_rate(row, half):
            continue
        if not rate_of(row.nbytes, half.time_us, half.algbw, (time, algbw)):
            yield f"algbw {half.algbw:g} is not the size over {half.time_us:g} us"
        if signature and not product_of(half.algbw, signature.factor, half.busbw, (algbw, busbw)):
            yield f"busbw {half.busbw:g} is not {signature.factor:.4g} times algbw {half.algbw:g}"
    width = nccl_tests.TYPE_BYTES.get(row.type)
    if signature is None or width is None:
        return
    element = width * signature.parts
    if abs(row.count * element - row.nbytes) >= element:
        yield f"{row.count} elements of type {row.type} are not {row.nbytes} bytes"
    if signature.reduces not in (None, row.redop != "none"):
        yield f"the operator is {row.redop}"
    if row.root is not None and not _is_root(row.root, signature.rooted):
        yield f"the root is {row.root}"


def _is_old_rate(row: nccl_tests.Row, half: nccl_tests.Half) -> bool:
    """Whether the rate counts what the other ranks sent, as in versions without a root column."""
    width = nccl_tests.TYPE_BYTES.get(row.type)
    others = row.nbytes - row.count * width if width else 0
    old = row.root is None and not row.redop and half.algbw == half.busbw
    return old and others > 0 and rate_of(others, half.time_us, half.algbw, half.decimals[:2])


def _is_root(root: int, rooted: bool | None) -> bool:
    return rooted is None or (root >= 0 if rooted else root == -1)


def of_osu_row(banner: osu.Banner, row: osu.Row) -> str:
    """Return what is wrong with a row of ``osu_mbw_mr``, which has two rates."""
    if banner.test != "osu_mbw_mr" or not row.others or not row.nbytes:
        return ""
    rate = row.value * 1e6 / row.nbytes
    unit = _half_unit(2) * 1e6 / row.nbytes
    if agrees(row.others[0], 2, rate - unit, rate + unit):
        return ""
    return f"{row.others[0]:g} messages of {row.nbytes} bytes are not {row.value:g} MB/s"


def of_event(reading: events.Reading, start: events.Start | None) -> str:
    """Return what is wrong with a reading of our own programs, which ``start`` begins."""
    if start and reading.statistic not in ("", start.statistic):
        return f"a reading is the {reading.statistic}, the program measures the {start.statistic}"
    if reading.metric == "bandwidth" and reading.window and reading.seconds is not None:
        moved = reading.window * reading.nbytes
        if not math.isclose(moved, reading.value * reading.seconds * 1e9, rel_tol=_SLACK):
            return f"{reading.value:g} GB/s is not {moved} bytes over {reading.seconds:g} s"
    return _of_collective(reading, start.ranks if start else None)


def _of_collective(reading: events.Reading, ranks: int | None) -> str:
    """Return what is wrong with a line of ``torch_collectives``, which has time and two rates."""
    algbw, places = reading.algbw_gb_per_s, (_JSON_DECIMALS, _JSON_DECIMALS)
    if reading.metric != "busbw" or algbw is None:
        return ""
    if reading.us is not None and not rate_of(reading.nbytes, reading.us, algbw, places):
        return f"algbw {algbw:g} is not the size over {reading.us:g} us"
    signature = signatures(ranks).get(reading.operation) if ranks and ranks > 1 else None
    if signature and not product_of(algbw, signature.factor, reading.value, places):
        return f"busbw {reading.value:g} is not {signature.factor:.4g} times algbw {algbw:g}"
    return ""
