# SPDX-License-Identifier: MIT
"""Draw limit, band and readings of a benchmark over the message size, as pages do."""

from __future__ import annotations

from pathlib import Path

from busbar import explain, site
from busbar.engine.results import Result
from busbar.engine.run import Run
from busbar.report.curve import curve
from busbar.report.page import templates

_LOG = Path("tests/data/h200x4/osu_bw_healthy_a.log")
_STYLE = """\
<style>svg{background:#fff}text{font:12px sans-serif;fill:#333}.end{text-anchor:end}
.middle{text-anchor:middle}.grid,.axis{stroke:#ccc;fill:none}.band{fill:#9ec5e8}
.limit{stroke:#b3261e;fill:none;stroke-width:2}.line{stroke:#1b4f8a;fill:none}
.dot{fill:#1b4f8a}</style>"""


def band_picture() -> str:
    """Return the SVG of one recorded run of ``osu_bw``."""
    (run,) = explain.explain([_LOG], known=Run(site=site.load("h200x4")))
    rows = [
        Result(
            *("osu_bw", each.verdict, "", "", "bandwidth", "D D", each.reading.nbytes),
            gb_per_s=each.reading.value,
            limit=each.limit,
            low=each.expectation.low,
            high=each.expectation.high,
        )
        for each in run.judged
        if each.expectation
    ]
    macros = vars(templates().get_template("pictures.html.j2").module)
    figure = macros["curve"](curve("osu_bw between two of four H200", rows), "band")
    _, _, picture = "".join(figure).partition("<svg")
    head, _, body = picture.partition("</svg>")[0].partition(">")
    head += ' xmlns="http://www.w3.org/2000/svg" width="720"'
    return f"<svg{head}>{_STYLE}{body}</svg>\n"
