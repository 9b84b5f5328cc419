# SPDX-License-Identifier: MIT
"""Whether an output of nccl-tests is what was requested, and agrees with itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from busbar.engine.contradictions import half_unit, product_of, rate_of
from busbar.engine.identify import algorithms_of
from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.tool import Contradiction
from busbar.tools.nccl_tests.options import OPTIONS, NcclOptions, Parameters, parse_options
from busbar.tools.nccl_tests.parse import TYPE_BYTES, NcclHalf, NcclRow
from busbar.tools.nccl_tests.read import TOOL_NAME, NcclTable, rows_of
from busbar.units import MIB, format_bytes

_ROUNDED = 0.01
"""NCCL rounds a message down to what divides among the ranks; by less than this share."""
_ALIGNED = 128
"""Bytes per rank by which it rounds a small message at most."""
_ENDS = 2
_SIX_DIGITS = 1e-5
_NOT_CHECKED_IN_PLACE = ("alltoall", "sendrecv")
"""The tool prints N/A there."""


def answer(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield where options, sizes and ranks of the output differ from the launch."""
    output = shown.facts
    if output.tool != TOOL_NAME:
        return  # without a table the readings are missing, which is another assertion's
    names = {name for name, _ in output.names} - {launch.bench}
    if names:
        yield f"requested {launch.bench}, but {', '.join(sorted(names))} ran"
    asked = parse_options(launch.command[1:])
    stated = output.part(NcclTable).parameters
    yield from _of_sizes(asked, launch, output)
    if stated:
        yield from _of_parameters(asked, launch, stated[0])
    ranks = {device.rank for device in output.devices.values()}
    if ranks != set(range(launch.ranks)):
        yield f"the tool lists {len(ranks)} GPUs for {launch.ranks} ranks"
    if len(output.names) not in (0, _ENDS):  # old versions do not name it
        yield "the output does not name its collective once before the table and once after it"
    ran = {name for name, _ in algorithms_of(output)} - {""}
    if ran and launch.bench not in ran:
        yield f"NCCL's log names {', '.join(sorted(ran))}"


def _of_sizes(asked: NcclOptions, launch: BenchLaunch, output: JobOutput) -> Iterator[str]:
    sizes = asked.sizes or launch.sizes
    rows = [row for row, _ in rows_of(output)]
    least = min(sizes, default=0)
    for row in rows:
        if not asked.sizes and row.nbytes < least:
            continue
        slack, most = _ALIGNED * launch.ranks, output.max_bytes or row.nbytes
        fits = (size * (1 - _ROUNDED) - slack <= row.nbytes <= min(size, most) for size in sizes)
        if not any(fits):
            yield f"{format_bytes(row.nbytes)} was not requested"
            return
    for a, b in pairwise(rows):
        alike = (a.type, a.redop, a.root) == (b.type, b.redop, b.root)
        # Small sizes are rounded to the same one; with -N the sizes begin again.
        risen = b.nbytes > a.nbytes or (b.nbytes == a.nbytes and b.nbytes < MIB)
        if alike and not risen and asked.cycles == 1:
            yield f"{format_bytes(b.nbytes)} follows {format_bytes(a.nbytes)} in the table"
            return


def _of_parameters(asked: NcclOptions, launch: BenchLaunch, stated: Parameters) -> Iterator[str]:
    least = 1 if launch.validated and not asked.check else asked.check
    # Not every version prints the number of launches of a graph.
    options = vars(asked) | {"check": least, "graph": None if asked.graph else 0}
    for key, row in OPTIONS.items():
        wanted, printed = options[key], stated.get(key)
        if wanted is not None and printed is not None and wanted != printed:
            yield f"{row['words']}: requested {wanted}, but {printed} was used"


def checked(launch: BenchLaunch, shown: LaunchOutput) -> bool:
    """Return whether every row has its count of wrong elements."""
    rows = rows_of(shown.facts)
    halves = [row.out_of_place for row, _ in rows]
    if launch.bench not in _NOT_CHECKED_IN_PLACE:
        halves += [row.in_place for row, _ in rows if row.in_place]
    return bool(halves) and all(half.wrong is not None for half in halves)


def lone(launch: BenchLaunch, shown: LaunchOutput) -> str:
    """Return why each process ran without the others; empty if they ran together."""
    facts = shown.facts
    if facts.tool != TOOL_NAME or launch.ranks == 1:
        return ""
    sizes = {*facts.values("nccl.init", "ranks"), *facts.values("nccl.nodes", "ranks")}
    first_only = len(facts.devices) > 1 and {d.rank for d in facts.devices.values()} == {0}
    if shown.runs < 2 and not first_only and sizes != {"1"}:
        return ""
    processes = max(shown.runs, len(facts.devices), len(shown.ranks))
    return (
        f"each of {processes} processes ran alone: {Path(launch.command[0]).name} is built without"
        " MPI, or not for the launcher's MPI; build nccl-tests (rccl-tests) with"
        f" MPI=1 MPI_HOME=..., or run it as one process with -g {launch.ranks}"
    )


# ---- an output by itself
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


def contradictions(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    """Yield where names, columns and numbers contradict each other; of rows only the first."""
    names = dict(output.names)
    if len(names) > 1:
        text = f"the output is called {' and '.join(names)}"
        yield Contradiction(text, output.names[-1][1])
    elif operation and names and operation not in names:
        text = f"the output is called {output.names[0][0]}, its columns are those of {operation}"
        yield Contradiction(text, output.names[0][1])
    known = signatures(ranks) if ranks and ranks > 1 else {}
    for row, evidence in rows_of(output):
        for text in _of_row(row, known.get(operation or "")):
            yield Contradiction(f"{format_bytes(row.nbytes)}: {text}", evidence)
            return
    if output.finished and rows_of(output) and output.out_of_bounds is None:
        text = "the line that counts values out of bounds is missing"
        yield Contradiction(text, output.finished)
    if text := _of_average(output.part(NcclTable)):
        yield Contradiction(text, output.finished)


def _of_average(table: NcclTable) -> str:
    """Return how the mean differs from the rows; people leave rows out of a table that they post.

    The tool prints six digits of the mean of the rates before it rounds them for the rows.
    """
    halves = [half for row, _ in table.rows for half in (row.out_of_place, row.in_place) if half]
    stated: Any = table.parameters[0] if table.parameters else {}
    sizes = NcclOptions(**stated).sizes
    if table.average is None or not sizes or len(table.rows) != len(sizes):
        return ""
    mean = sum(half.busbw for half in halves) / len(halves)
    rounded = sum(half_unit(half.decimals[2]) for half in halves) / len(halves)
    if math.isclose(mean, table.average, rel_tol=_SIX_DIGITS, abs_tol=rounded):
        return ""
    return f"Avg bus bandwidth is {table.average:g}, but the mean of the rows is {mean:g}"


def _of_row(row: NcclRow, signature: Signature | None) -> Iterator[str]:
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
    width = TYPE_BYTES.get(row.type)
    if signature is None or width is None:
        return
    element = width * signature.parts
    if abs(row.count * element - row.nbytes) >= element:
        yield f"{row.count} elements of type {row.type} are not {row.nbytes} bytes"
    if signature.reduces not in (None, row.redop != "none"):
        yield f"the operator is {row.redop}"
    if row.root is not None and not _is_root(row.root, signature.rooted):
        yield f"the root is {row.root}"


def _is_old_rate(row: NcclRow, half: NcclHalf) -> bool:
    """Whether the rate counts what the other ranks sent, as in versions without a root column."""
    width = TYPE_BYTES.get(row.type)
    others = row.nbytes - row.count * width if width else 0
    old = row.root is None and not row.redop and half.algbw == half.busbw
    return old and others > 0 and rate_of(others, half.time_us, half.algbw, half.decimals[:2])


def _is_root(root: int, rooted: bool | None) -> bool:
    return rooted is None or (root >= 0 if rooted else root == -1)


def columns_operation(facts: JobOutput, ranks: int | None) -> set[str]:
    """Return the collectives that fit the columns count, operator, root and busbw over algbw."""
    candidates: set[str] | None = None
    for row, _ in rows_of(facts)[-3:]:
        width = TYPE_BYTES.get(row.type)
        half = row.out_of_place
        if not width or not row.count or half.algbw < 1 or not ranks or ranks < 2:
            continue
        if not half.busbw > 0:
            continue  # not a number
        fit = {
            name
            for name, (parts, factor, reduces, rooted) in signatures(ranks).items()
            if abs(row.count * width * parts - row.nbytes) <= row.nbytes * 0.02 * parts
            and abs(half.busbw / half.algbw - factor) <= 0.01 * factor + 0.02 / half.algbw
            and (reduces is None or not row.redop or reduces == (row.redop != "none"))
            and (rooted is None or row.root is None or rooted == (row.root >= 0))
        }
        candidates = fit if candidates is None else candidates & fit
    return candidates or set()
