# SPDX-License-Identifier: MIT
"""Plot the matrix of all pairs as a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from busbar.errors import BusbarError
from busbar.expect.show import Answer

_FORMATS = (".png", ".svg")


def check_name(file: Path) -> None:
    """Raise ``BusbarError`` for a format other than .png and .svg, or a missing directory."""
    if file.suffix not in _FORMATS:
        raise BusbarError("unknown picture format", where=str(file), hint="use .png or .svg")
    if not file.parent.is_dir():
        raise BusbarError("no such directory", where=str(file.parent), hint="create it")


def plot_matrix(file: Path, title: str, answers: Mapping[tuple[int, int], Answer]) -> None:
    """Write a heat map of the typical value of each pair, or its limit if there is no band.

    Raises ``BusbarError`` for a format other than .png and .svg, or if the file is not writable.
    """
    check_name(file)
    ends = sorted({end for pair in answers for end in pair})
    grid = [[_value(answers.get((src, dst))) for dst in ends] for src in ends]
    unit = next(iter(answers.values())).content.unit
    figure = Figure(figsize=(2 + 0.6 * len(ends), 1.4 + 0.6 * len(ends)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(grid, cmap="viridis")
    axes.set(title=title, xlabel="receiving GPU", ylabel="sending GPU")
    axes.set_xticks(range(len(ends)), map(str, ends))
    axes.set_yticks(range(len(ends)), map(str, ends))
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            if not isnan(value):  # the diagonal has no value
                axes.text(column, row, f"{value:.4g}", ha="center", va="center", fontsize=7)
    figure.colorbar(image, label=unit)
    # Keep text as text in SVG: it can be searched, and the file needs no fonts.
    with mpl.rc_context({"svg.fonttype": "none"}):
        try:
            figure.savefig(file)
        except OSError as error:
            raise BusbarError(f"cannot be written: {error.strerror}", where=str(file)) from error


def _value(answer: Answer | None) -> float:
    if answer is None:
        return nan
    typical = answer.number("typical")
    value = typical if typical is not None else answer.number("limit")
    return nan if value is None else value
