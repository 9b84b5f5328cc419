# SPDX-License-Identifier: MIT
"""Write the report of a run: one self-contained HTML file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from busbar.check.names import short_name
from busbar.documents import CheckDocument
from busbar.judge.results import Outcome, Result
from busbar.report import plots
from busbar.terminal import visible
from busbar.units import format_bytes


def write(path: Path, document: CheckDocument, outcomes: Sequence[Outcome]) -> None:
    """Write the page for ``document``, the output of ``busbar check --json``, to ``path``."""
    environment = Environment(
        loader=PackageLoader("busbar.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
    )
    environment.filters["size"] = lambda count: format_bytes(count) if count else ""
    environment.filters["short"] = short_name
    environment.filters["number"] = lambda value: "" if value is None else f"{value:.4g}"
    page = environment.get_template("report.html.j2").render(
        document=document, figures=[_figures(outcome) for outcome in outcomes]
    )
    path.write_text(page, encoding="utf-8")


def _shown(value: object) -> object:
    """Make control characters and changes of text direction visible, as on the terminal."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_PAIR = re.compile(r"[0-9]{1,4}->[0-9]{1,4}")


def _figures(outcome: Outcome) -> dict[str, Any]:
    """Return the figures of one check as SVG: curves, and matrices at the largest sizes."""
    readings = [
        r
        for r in outcome.results
        if r.value is not None and math.isfinite(r.value) and _PAIR.fullmatch(r.pair)
    ]
    figures: list[str] = []
    for buffers in dict.fromkeys(r.buffers for r in readings):
        rows = [r for r in readings if r.buffers == buffers]
        bandwidth = [r for r in rows if r.metric == "bandwidth"]
        if bandwidth:
            figures.append(plots.svg(plots.curve(bandwidth)))
        for metric in ("bandwidth", "latency"):
            largest = max((r.bytes or 0 for r in rows if r.metric == metric), default=None)
            if largest is not None:
                figures.append(plots.svg(plots.matrix(_at(rows, metric, largest))))
    return {"check": outcome.check, "environment": outcome.environment, "svg": figures}


def _at(rows: list[Result], metric: str, nbytes: int) -> list[Result]:
    return [r for r in rows if r.metric == metric and r.bytes == nbytes]
