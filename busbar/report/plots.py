# SPDX-License-Identifier: MIT
"""Plot the two figures of a check: the matrix of pairs, and bandwidth against size."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from busbar.judge.results import Result
from busbar.terminal import one_line
from busbar.units import format_bytes

mpl.rcParams["text.parse_math"] = False  # a "$" in a name is no formula


def svg(figure: Figure) -> str:
    """Return the figure as an ``<svg>`` element for an HTML page: no XML header, no date."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", text.getvalue(), count=1, flags=re.DOTALL)


def _label(text: str) -> str:
    """Return text for which the font has all characters."""
    return one_line(text[:40]).encode("ascii", "backslashreplace").decode()


def matrix(results: Sequence[Result]) -> Figure:
    """Plot readings of one metric and one size as a heat map, sender by receiver."""
    ends = [tuple(map(int, result.pair.split("->"))) for result in results]
    ranks = 1 + max(rank for pair in ends for rank in pair)
    values = np.full((ranks, ranks), np.nan)
    for (source, target), result in zip(ends, results, strict=True):
        values[source, target] = result.value
    unit = "us" if results[0].metric == "latency" else "GB/s"
    size = 1.6 + 0.7 * min(ranks, 16)
    figure = Figure(figsize=(size + 0.8, size))
    axes = figure.subplots()
    # The scale starts at zero, so that noise of one percent does not look like a fault.
    top = float(np.nanmax(values))
    image = axes.imshow(values, vmin=0, vmax=top, cmap="viridis")
    figure.colorbar(image, ax=axes, label=unit, shrink=0.8)
    if ranks <= 16:
        for (source, target), value in np.ndenumerate(values):
            if not np.isnan(value):
                colour = "white" if value < 0.6 * top else "black"
                axes.text(target, source, f"{value:.3g}", ha="center", va="center", color=colour)
    axes.set_xticks(range(ranks))
    axes.set_yticks(range(ranks))
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    axes.set_title(f"{_label(results[0].buffers)}, {format_bytes(results[0].bytes or 0)}")
    return figure


def curve(results: Sequence[Result]) -> Figure:
    """Plot bandwidth against size: a line per pair, the band over all pairs, and the limit."""
    figure = Figure(figsize=(6.4, 4))
    axes = figure.subplots()
    for pair in dict.fromkeys(result.pair for result in results):
        points = sorted((r.bytes or 0, r.gb_per_s or 0) for r in results if r.pair == pair)
        axes.plot(*zip(*points, strict=True), marker=".", linewidth=0.8, label=pair)
    sizes = sorted({result.bytes or 0 for result in results if result.limit is not None})
    if sizes:
        at = [[r for r in results if r.bytes == size and r.limit is not None] for size in sizes]
        low = [min(r.low or 0 for r in rows) for rows in at]
        high = [max(r.high or 0 for r in rows) for rows in at]
        limit = [max(r.limit or 0 for r in rows) for rows in at]
        axes.fill_between(sizes, low, high, alpha=0.2, color="tab:green", label="band")
        axes.plot(sizes, limit, color="tab:red", linestyle="--", label="limit")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [format_bytes(size) for size in sizes])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("GB/s")
    if len(axes.get_lines()) <= 14:
        axes.legend(fontsize="x-small", ncols=2)
    axes.grid(alpha=0.3)
    return figure
