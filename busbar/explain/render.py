# SPDX-License-Identifier: MIT
"""Print explanations on the terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from busbar.engine.reading import Cause, Evidence, Note, Reading
from busbar.engine.verdicts import Judged, common_end, shortfall
from busbar.explain.model import UNKNOWN_TOOL, Explanation
from busbar.explain.timeline import Position
from busbar.plain import Column, Part
from busbar.redact import redact
from busbar.terminal import Terminal
from busbar.units import format_bytes
from busbar.verdict import STYLES, Verdict, worst
from busbar.words import counted, names_text

_UNITS = {"bw": "GB/s", "busbw": "busbw GB/s", "latency_us": "us"}
_COLUMNS = (
    Column("size", right=True),
    Column("", rank=3),
    Column("measured", right=True),
    Column("expected", right=True, rank=2),
    Column("wrong", right=True, rank=1),
    Column(" "),
)
_MOST_ROWS = 16
_MOST_HOSTS = 4
_WITHOUT_CAUSE = {
    Verdict.PASS: "no reading is below its band",
    Verdict.UNJUDGED: "no band is known for these measurements",
}
_LONG_LINE = 240
"""Longer evidence is shown around the words that it is shown for."""
_BEFORE = 80


def print_explanations(
    explanations: Sequence[Explanation], out: Terminal, *, verbose: bool = False
) -> None:
    """Print each run, the worst first: verdict and causes, its readings, then notes."""
    ordered = sorted(explanations, key=lambda each: each.verdict.severity, reverse=True)
    for index, explanation in enumerate(ordered):
        if index:
            out.rule()
        _print(explanation, out, verbose)


def _print(explanation: Explanation, out: Terminal, verbose: bool) -> None:
    verdict = explanation.verdict
    step = _next_step(explanation)
    out.headline(verdict, redact(_sentence(explanation)), step)
    if ran := _what_ran(explanation):
        out.line(ran)
    if hosts := explanation.hosts:
        out.line(f"on {names_text(hosts, len(hosts) if verbose else _MOST_HOSTS)}")
    for device in explanation.devices if verbose else ():
        out.line(f"  {device}", style="dim")
    for index, cause in enumerate(explanation.causes):
        _cause(cause, out, verbose, first=not index, told=step)
    _print_readings(explanation, out, None if verbose else _MOST_ROWS)
    shown_lines = {line for cause in explanation.causes for line in cause.evidence}
    for note in explanation.notes:
        if note.id == "site-recognised" and explanation.site and not verbose:
            continue  # the first line names it
        if note.id == "tcp-only" and any(
            c.id == "nccl-socket-fallback" for c in explanation.causes
        ):
            continue
        if note.id == "error-shown" and shown_lines.issuperset(note.evidence) and not verbose:
            continue  # a cause says it
        _note(note, out, shown_lines, verbose)


def _sentence(explanation: Explanation) -> str:
    """Return what is slow, by how much and why, or that nothing is."""
    why = [_what_failed(cause) for cause in explanation.causes[:1]]
    bad = [each for each in explanation.judged if each.verdict.is_problem and each.bound]
    if not bad and not why:
        if explanation.verdict is Verdict.UNJUDGED and not explanation.readings:
            return "it shows no reading, and no cause is known"
        return _WITHOUT_CAUSE.get(explanation.verdict, "no cause is known")
    if not bad:
        busbw = [each for each in explanation.readings if each.kind == "busbw"]
        if not busbw or explanation.verdict is not Verdict.DEGRADED:
            return why[0]
        largest = max(busbw, key=lambda each: each.nbytes)
        return f"{largest.value:.4g} GB/s at {format_bytes(largest.nbytes)}: {why[0]}"
    worst_of = min(bad, key=lambda each: (-each.reading.nbytes, each.share))
    reading = worst_of.reading
    what = reading.operation or explanation.operation or explanation.tool
    if explanation.ranks:
        what += f" of {counted(explanation.ranks, 'rank')}"
    if reading.source is not None:
        what, why = _pair(explanation, bad, reading, why)
    beyond = worst_of.limit if worst_of.verdict is Verdict.IMPOSSIBLE else None
    unit = "us" if reading.kind == "latency_us" else "GB/s"
    missed = shortfall(reading.value, unit, reading.nbytes, edge=worst_of.bound, limit=beyond)
    return ": ".join([f"{what} {missed}", *why])


def _pair(
    explanation: Explanation, bad: Sequence[Judged], reading: Reading, why: list[str]
) -> tuple[str, list[str]]:
    """Return the rank or GPU that all slow pairs share, or the pair; and the reason without it."""
    slow, every = (
        [
            (each.source, each.target or 0)
            for each in readings
            if (each.nbytes, each.buffers) == (reading.nbytes, reading.buffers)
            and each.source is not None
        ]
        for readings in ([each.reading for each in bad], explanation.readings)
    )
    end = common_end(slow, every)
    if end is None:
        return f"rank {reading.source} to rank {reading.target}", why
    name = "GPU" if explanation.nodes == 1 and reading.buffers == "D D" else "rank"
    return f"{name} {end}", [cause.summary for cause in explanation.causes[:1]]


def _what_failed(cause: Cause) -> str:
    """Return where and when what failed, and what followed from it."""
    place = Position(cause.rank, cause.pid, cause.host, cause.gpu)
    said = (place.words, cause.host if cause.rank is None else f"rank {cause.rank}")
    words = "" if any(each and each in cause.summary for each in said) else place.words
    at = f" at {cause.time[-8:]}" if cause.time and cause.time[-8:] not in cause.summary else ""
    what = f"{words}{at}: {cause.summary}" if words else f"{cause.summary}{at}"
    after = ", ".join(dict.fromkeys(each.id for each in cause.consequences))
    return what + (f"; then {after}" if after else "")


def _what_ran(explanation: Explanation) -> str:
    """Return tool, versions, test, ranks, nodes and site, if known."""
    words = list(explanation.libraries)
    if explanation.tool != UNKNOWN_TOOL:
        words.insert(0, f"{explanation.tool} {explanation.version or ''}".strip())
    if explanation.step:
        words.insert(0, f"step {explanation.step}")
    if explanation.operation and explanation.operation != explanation.tool:
        words.append(explanation.operation)
    if explanation.ranks:
        words.append(counted(explanation.ranks, "rank"))
    if explanation.nodes:
        words.append(counted(explanation.nodes, "node"))
    if explanation.site:
        words.append(f"site {explanation.site}")
    return ", ".join(words)


def _next_step(explanation: Explanation) -> str:
    """Return the remedy of the first cause, or how to get a band to judge by."""
    if explanation.causes:
        return explanation.causes[0].remedy
    if not explanation.readings or explanation.site:
        return ""
    given = next((n.details["site"] for n in explanation.notes if "site" in n.details), "")
    if given:
        return f"busbar expect --site {given} shows which benchmarks and buffers have a band"
    return "pass the machine with --site to apply its bands; busbar site list prints the sites"


def _cause(cause: Cause, out: Terminal, verbose: bool, *, first: bool, told: str) -> None:
    """Print the finding, the line that proves it and the remedy.

    The first sentence has the finding of the first cause already.
    """
    what = "" if first else f": {redact(_what_failed(cause))}"
    sure = "" if cause.id == "below-band-unexplained" else f" ({cause.confidence})"
    out.line(f"cause {cause.id}{sure}{what}", style="bold", wraps=True)
    for line in cause.evidence if verbose else cause.evidence[:1]:
        _evidence(line, cause.summary, out, whole=verbose)
    if before := cause.details.get("before"):
        out.line(f"  before: {redact(before)}", style="dim", wraps=True)
    for after in cause.consequences:
        when = f" at {after.time[-8:]}" if after.time else ""
        out.line(f"  consequence {after.id}{when}: {redact(after.summary)}", wraps=True)
    if cause.remedy != told:
        out.line(f"  remedy: {cause.remedy}", wraps=True)


def _note(note: Note, out: Terminal, shown: set[Evidence], verbose: bool) -> None:
    out.line(f"note {note.id}: {redact(note.summary)}", wraps=True)
    for line in note.evidence if verbose else note.evidence[:1]:
        if line not in shown:
            _evidence(line, note.summary, out, whole=verbose)
            shown.add(line)


def _evidence(line: Evidence, summary: str, out: Terminal, *, whole: bool) -> None:
    """Print a line of the input; only its place if the summary has the words already."""
    text = redact(line.text).strip()
    if text and text in redact(summary):
        text = ""
    elif len(text) > _LONG_LINE and not whole:
        text = _around(text, summary)
    out.line(f"  {line.file}:{line.line}{': ' if text else ''}{text}", style="dim", wraps=True)


def _around(text: str, summary: str) -> str:
    """Return the part of a long line that has the longest word of the summary."""
    words = sorted(re.findall(r"\w{4,}", summary), key=len, reverse=True)
    point = next((at for word in words if (at := text.find(word)) >= 0), 0)
    begin = max(0, min(point - _BEFORE, len(text) - _LONG_LINE))
    part = text[begin : begin + _LONG_LINE]
    end = "..." if begin + _LONG_LINE < len(text) else ""
    return f"{'...' if begin else ''}{part}{end}"


def _print_readings(explanation: Explanation, out: Terminal, most: int | None) -> None:
    """Print a table with one line for each size, the last ``most``.

    A line has all readings of one size that measure the same. There are none for ``algbw``.
    """
    groups: dict[tuple[int, str], list[Reading]] = {}
    for reading in explanation.readings:
        if reading.kind != "algbw":
            words = (reading.operation, reading.buffers, _UNITS[reading.kind])
            what = " ".join(word for word in words if word)
            groups.setdefault((reading.nbytes, what), []).append(reading)
    rows: list[list[Part]] = []
    judged = {id(each.reading): each for each in explanation.judged}
    shown = list(groups.items())
    for (nbytes, what), group in shown[-most:] if most else shown:
        found = [judged[id(reading)] for reading in group if id(reading) in judged]
        verdict = worst(each.verdict for each in found) if found else Verdict.PASS
        wrong = sum(reading.wrong for reading in group)
        ending: Part = (str(verdict), STYLES[verdict]) if verdict.is_problem else ""
        cells = [format_bytes(nbytes), what, _values(group), _expected(found)]
        rows.append([*cells, str(wrong) if wrong else "", ending])
    if rows:
        out.fitted(_COLUMNS, rows)
    if most and len(shown) > most:
        out.line(f"the last {most} of {len(shown)} lines; -v shows all", style="dim")


def _expected(judged: Sequence[Judged]) -> str:
    """Return the bound that is nearest to the readings; empty without a band."""
    bounds = sorted(each.bound for each in judged if each.expectation)
    if not bounds:
        return ""
    latency = judged[0].reading.kind == "latency_us"
    return f"<= {bounds[-1]:.4g}" if latency else f">= {bounds[0]:.4g}"


def _values(group: Sequence[Reading]) -> str:
    """Return out of place and in place, or the range over the pairs of ranks."""
    values = [reading.value for reading in group]
    if [reading.in_place for reading in group] == [False, True]:
        return f"{values[0]:.4g} / {values[1]:.4g} in place"
    if len(values) == 1:
        return f"{values[0]:.4g}"
    unit = "pairs" if group[0].source is not None else "readings"
    return f"{min(values):.4g} to {max(values):.4g} ({len(values)} {unit})"
