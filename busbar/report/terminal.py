# SPDX-License-Identifier: MIT
"""Print what a run found: verdict, one line per check, what is wrong, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from busbar.check.listing import Match, skips
from busbar.engine.results import Outcome, Result
from busbar.plain import Column, Part
from busbar.report import rows as tables
from busbar.report.headline import Headline
from busbar.terminal import Terminal
from busbar.units import format_bytes
from busbar.verdict import STYLES, Verdict, worst
from busbar.words import counted, grouped, names_text

_FEWEST_GPUS, _MOST_GPUS = 3, 16
_MAX_SHOWN = 3
"""Failures of one check, and lines of evidence of one cause, that are printed."""


def print_run(
    verdict: Verdict,
    coverage: str,
    outcomes: Sequence[Outcome],
    skipped: Sequence[Match],
    out: Terminal,
    *,
    headline: Headline,
    seconds: float,
    report: Path,
    verbose: bool = False,
) -> None:
    """Print what was found in one sentence, then all that led to it; fit one screen."""
    out.headline(verdict, headline.text, headline.next)
    print_verdicts(outcomes, out, verbose=verbose, told=headline.next)
    if verbose:
        for match in skipped:
            out.line(f"skipped {match.short}: {match.reason}")
    else:
        for line in skips(skipped):
            out.line(line)
    out.line(f"{coverage}{', ' if coverage else ''}{_counts(outcomes, seconds)}; report: {report}")


def summary(verdict: Verdict, coverage: str, headline: Headline) -> str:
    """Return one line for mail, a monitor, or the reason of a drained node."""
    return f"{verdict}: {headline}" + (f"; {coverage}" if coverage else "")


def _counts(outcomes: Sequence[Outcome], seconds: float) -> str:
    readings = [row for o in outcomes for row in o.results if row.value is not None]
    unjudged = sum(row.verdict is Verdict.UNJUDGED for row in readings)
    checks = sum(bool(outcome.environment) for outcome in outcomes)
    parts = [f"{counted(len(readings) - unjudged, 'reading')} judged"]
    parts += [f"{unjudged} without a band"] if unjudged else []
    return ", ".join([*parts, counted(checks, "check"), f"{seconds:.0f} s"])


def print_verdicts(
    outcomes: Sequence[Outcome], out: Terminal, *, verbose: bool = False, told: str = ""
) -> None:
    """Print one row per check, then failures with their causes, then the notes.

    ``verbose`` prints one row per size and buffers (of the worst pair), and all reasons. The
    remedy that was ``told`` is not repeated.
    """
    name = tables.namer(outcomes)
    rows_of = tables.rows_of_readings if verbose else tables.rows_of_check
    out.fitted(tables.COLUMNS, [row for each in outcomes for row in rows_of(name(each), each)])
    _print_pairs(outcomes, name, out)
    _print_reasons(outcomes, name, out, verbose=verbose)
    _print_causes(outcomes, name, out, verbose=verbose, told=told)
    # Most notes apply to every check; their evidence is in the JSON only. The last line counts
    # what has no band.
    notes = [n for o in outcomes for n in o.notes if verbose or n.id != "no-band"]
    for text in dict.fromkeys(f"note {n.id}: {n.summary}" for n in notes):
        out.line(text)


def _print_pairs(outcomes: Sequence[Outcome], name: tables.Namer, out: Terminal) -> None:
    """Print the bandwidths between all GPUs of the node with the slowest pair, largest size."""
    found = grouped(
        ((-(row.bytes or 0), name(outcome), row.where), row)
        for outcome in outcomes
        for row in outcome.results
        if row.buffers == "D D" and row.metric == "bandwidth" and tables.ends_of(row)
    )
    matrices = {}
    for key, rows in found.items():
        pairs = {ends: row for row in rows if (ends := tables.ends_of(row))}
        gpus = sorted({gpu for pair in pairs for gpu in pair})
        if _FEWEST_GPUS <= len(gpus) <= _MOST_GPUS:
            matrices[key] = gpus, pairs
    if not matrices:
        return
    largest = min(size for size, *_ in matrices)
    keys = [key for key in matrices if key[0] == largest]
    key = min(keys, key=lambda key: min(map(tables.quality, matrices[key][1].values())))
    (gpus, pairs), (size, check, where) = matrices[key], key
    place = f" on {where}" if where else ""
    out.line(f"GB/s from GPU (row) to GPU (column), {format_bytes(-size)}, {check}{place}")
    columns = [Column(""), *(Column(str(gpu), right=True) for gpu in gpus)]
    out.fitted(columns, [[str(a), *(_cell(pairs.get((a, b))) for b in gpus)] for a in gpus])


def _cell(row: Result | None) -> Part:
    return (f"{row.value:.4g}", STYLES[row.verdict]) if row and row.value else ""


def _print_reasons(
    outcomes: Sequence[Outcome], name: tables.Namer, out: Terminal, *, verbose: bool
) -> None:
    """Print each reason once, with the checks that it is the reason of."""
    checks: dict[tuple[Verdict, str], list[str]] = {}
    for outcome in outcomes:
        reasons = list(_reasons(outcome.results))
        reasons.sort(key=lambda reason: -reason[0].severity)
        shown = reasons if verbose else reasons[:_MAX_SHOWN]
        if left := reasons[len(shown) :]:
            verdict = worst(verdict for verdict, _ in left)
            shown.append((verdict, f"and {len(left)} more, see the report"))
        for reason in shown:
            checks.setdefault(reason, []).append(name(outcome))
    for (verdict, message), names in checks.items():
        out.line((verdict, STYLES[verdict]), f" {names_text(names)}: {message}")


def _reasons(results: Iterable[Result]) -> Iterator[tuple[Verdict, str]]:
    """Yield verdict and message of each failure; only the worst few pairs of each size."""
    failures = [row for row in results if row.verdict.is_problem]
    without_size = [row for row in failures if row.bytes is None]
    for rows in [
        without_size,
        *tables.groups_of(row for row in failures if row.bytes is not None),
    ]:
        rows.sort(key=tables.quality)
        counts = Counter((row.verdict, row.message) for row in rows)
        shown = list(counts.items())[: len(counts) if rows is without_size else _MAX_SHOWN]
        for (verdict, message), count in shown:
            yield verdict, message + (f" ({count} times)" if count > 1 else "")
        if left := len(counts) - len(shown):
            rest = f"and {left} more of this size, see the report"
            yield worst(row.verdict for row in rows), rest


def _print_causes(
    outcomes: Sequence[Outcome], name: tables.Namer, out: Terminal, *, verbose: bool, told: str
) -> None:
    """Print each cause once: what it is in which checks, the evidence, the remedy."""
    causes = grouped((c.id, (name(outcome), c)) for outcome in outcomes for c in outcome.causes)
    for cause_id, found in causes.items():
        for summary, names in grouped((cause.summary, check) for check, cause in found).items():
            out.line((f"cause {cause_id}", "bold"), f" ({names_text(names)}): {summary}")
        evidence = dict.fromkeys(
            f"  {line.file}:{line.line}: {line.text.strip()}"
            for _, cause in found
            for line in cause.evidence
        )
        for line in list(evidence)[: None if verbose else _MAX_SHOWN]:
            out.line(line)
        for remedy in dict.fromkeys(c.remedy for _, c in found if c.remedy != told):
            out.line(f"  remedy: {remedy}")
