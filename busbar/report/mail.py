# SPDX-License-Identifier: MIT
"""A run on one screen, as text for mail or chat."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from busbar.boundary import one_line
from busbar.report.page import Page
from busbar.verdict import Verdict
from busbar.words import names_text

_WIDTH = 78
_HEIGHT = 24
_MOST_LINES = 2
"""Lines of one text."""
_MOST_NEWS = 3
_MOST_FAILURES = 3
_MOST_UNMEASURED = 3


def mail(page: Page) -> list[str]:
    """Return at most 24 lines: verdict, changes, failures with remedy, what was not measured."""
    lines = [text for line in _lines(page) for text in _wrapped(one_line(line))]
    return lines if len(lines) <= _HEIGHT else [*lines[: _HEIGHT - 1], "..."]


def _lines(page: Page) -> Iterator[str]:
    run = page.run
    yield f"{run.site}: {run.verdict}: {page.headline.text}"
    yield ", ".join(filter(None, (run.when, page.judged, run.coverage)))
    recent = [each for each in page.news if each.recent]
    for each in recent[:_MOST_NEWS]:
        yield f"changed {each.when}: {each.title}"
        if each.likely:
            yield f"  {each.likely[0]}"
    yield from _more(len(recent), _MOST_NEWS, "changes")
    for failure in page.failures[:_MOST_FAILURES]:
        new = "new, " if failure.new else ""
        checks = names_text(failure.checks)
        yield f"{failure.verdict} {failure.known} ({new}{checks}):"
        yield from (f"  {text}" for text in failure.summaries[:_MOST_LINES])
        if failure.remedy:
            yield f"  {failure.remedy}"
    yield from _more(len(page.failures), _MOST_FAILURES, "causes")
    for what, why in page.unmeasured[:_MOST_UNMEASURED]:
        yield f"not measured: {what}: {why}"
    yield from _more(len(page.unmeasured), _MOST_UNMEASURED, "not measured")
    if page.fleet:
        bad = [node.name for node in page.fleet.listed if node.verdict is not Verdict.PASS]
        yield f"nodes: {page.fleet.total}" + (f", not a pass: {names_text(bad)}" if bad else "")


def _more(count: int, shown: int, what: str) -> Iterator[str]:
    if count > shown:
        yield f"and {count - shown} more {what}"


def _wrapped(line: str) -> list[str]:
    indent = "  " if line.startswith("  ") else ""
    return textwrap.wrap(
        line,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        max_lines=_MOST_LINES,
        placeholder=" ...",
        break_on_hyphens=False,
    )
