# SPDX-License-Identifier: MIT
"""Print explanations on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from busbar.explain.model import Explanation
from busbar.output.reading import Evidence, Reading
from busbar.redact import redact
from busbar.terminal import Table, Terminal
from busbar.units import format_bytes
from busbar.verdict import STYLES

_MOST_ROWS = 24
_EVIDENCE_WIDTH = 160


def print_explanations(explanations: Sequence[Explanation], out: Terminal) -> None:
    """Print each run: what ran, its readings, the verdict, causes and notes."""
    for index, explanation in enumerate(explanations):
        if index:
            out.rule()
        _print(explanation, out)


def _print(explanation: Explanation, out: Terminal) -> None:
    what = f"{explanation.tool} {explanation.version or ''}".strip()
    if explanation.operation and explanation.operation != explanation.tool:
        what += f", {explanation.operation}"
    scale = [f"{explanation.ranks} ranks"] if explanation.ranks else []
    scale += [f"{explanation.nodes} node(s)"] if explanation.nodes else []
    scale += [f"site {explanation.site}"] if explanation.site else []
    out.line(", ".join([what, *scale]), style="bold")
    if explanation.hosts:
        shown = ", ".join(explanation.hosts[:8])
        out.line(f"on {shown}{' ...' if len(explanation.hosts) > 8 else ''}")
    if explanation.readings:
        out.show(_readings(explanation.readings))
    colour = STYLES[explanation.verdict]
    out.line("verdict: ", (explanation.verdict, colour))
    for cause in explanation.causes:
        title = f"cause {cause.id} ({cause.confidence}): {redact(cause.summary)}"
        out.line(title, style="bold")
        _evidence(cause.evidence, out)
        out.line(f"  remedy: {cause.remedy}")
    for note in explanation.notes:
        out.line(f"note {note.id}: {redact(note.summary)}")
        _evidence(note.evidence[:1], out)


def _evidence(lines: Sequence[Evidence], out: Terminal) -> None:
    for line in lines:
        text = redact(line.text).strip()
        if len(text) > _EVIDENCE_WIDTH:
            text = text[:_EVIDENCE_WIDTH] + "..."
        out.line(f"  {line.file}:{line.line}: {text}", style="dim")


def _readings(readings: Sequence[Reading]) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("bytes", "kind", "GB/s", "us", "pair", "wrong"):
        table.add_column(heading, justify="right")
    shown = [r for r in readings if r.kind != "algbw"]
    for r in shown[-_MOST_ROWS:]:
        where = "in place" if r.in_place else "out of place" if r.in_place is False else ""
        if r.source is not None and r.target is not None:
            where = f"{r.source}->{r.target} {r.buffers}"
        table.add_row(
            format_bytes(r.nbytes),
            r.kind,
            f"{r.gb_per_s:.4g}",
            f"{r.value:.4g}" if r.kind == "latency_us" else "",
            where,
            str(r.wrong),
        )
    if len(shown) > _MOST_ROWS:
        table.caption = f"the last {_MOST_ROWS} of {len(shown)} readings"
    return table
