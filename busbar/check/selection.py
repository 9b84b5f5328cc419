# SPDX-License-Identifier: MIT
"""Select checks by name and tag; refuse names, tags and features that do not exist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Never

from busbar.check.listing import Match, why_not
from busbar.errors import BusbarError, suggestion, value_error
from busbar.words import names_text

_SETS = ("gate", "nightly", "full")
"""The tags of the size sets, smallest first."""


def selected(matches: Iterable[Match], names: Sequence[str], tags: Sequence[str]) -> list[Match]:
    """Return checks with one of the names and one of the tags; an empty list means any."""
    matches = list(matches)
    named = {match.name for name in names for match in _named(matches, name)}
    return [
        match
        for match in matches
        if (not names or match.name in named) and (not tags or set(tags) & set(match.tags))
    ]


def to_run(matches: Iterable[Match], names: Sequence[str], tags: Sequence[str]) -> list[Match]:
    """Return the checks to run: without a tag, each named check in its smallest set."""
    chosen = selected(matches, names, tags)
    if tags or not names:
        return chosen
    smallest: dict[str, int] = {}
    for match in chosen:
        smallest[match.test] = min(smallest.get(match.test, len(_SETS)), _set(match))
    return [match for match in chosen if _set(match) == smallest[match.test]]


def _set(match: Match) -> int:
    return next((n for n, tag in enumerate(_SETS) if tag in match.tags), len(_SETS))


def _named(matches: Sequence[Match], pattern: str) -> list[Match]:
    """Return the checks that match ``pattern``, a name printed by ``--list`` or ReFrame.

    A name printed by ``--list`` matches only its check, in all sets. Otherwise the pattern is a
    regular expression, as for ``reframe -n``, or a slash and ReFrame's hash.
    """
    if pattern.startswith("/"):
        return [match for match in matches if match.hash.startswith(pattern[1:])]
    test, *words = pattern.split() or [""]
    exact = [m for m in matches if m.test == test and {*words} <= {*m.short.split()[1:]}]
    if exact and (words or any(match.short == test for match in exact)):
        return exact
    hint = "pass a name printed by --list, or correct the expression"
    with value_error(f"{pattern!r} is not a valid regular expression: {{}}", "-n", hint, re.error):
        expression = re.compile(_expression(pattern))
        short = re.compile(pattern)
    return [
        match
        for match in matches
        if expression.search(match.name.replace(" ", "")) or short.search(match.short)
    ]


def _expression(pattern: str) -> str:
    """Return a regular expression for ReFrame's names without spaces.

    A name with parameters, such as ``pt2pt %bench=osu_bw``, may omit some of them.
    """
    test, *parameters = pattern.replace(" ", "").split("%")
    if not parameters:
        return test
    start = f"^{test}(?=%)" if test else ""
    return start + "".join(f".*%{parameter}(?=%|$)" for parameter in parameters)


def refuse_unknown(
    matches: Sequence[Match],
    *,
    names: Sequence[str],
    tags: Sequence[str],
    required: Sequence[str],
    provided: Iterable[str],
) -> None:
    """Raise ``BusbarError`` for an unknown name, tag or required feature.

    ``provided`` are the features of the environments.
    """
    for pattern in names:
        if not selected(matches, [pattern], ()):
            _refuse("-n", pattern, {name for m in matches for name in (m.test, m.short)})
    all_tags = {tag for match in matches for tag in match.tags}
    features = {feature for match in matches for feature in match.features} | set(provided)
    for option, asked, existing in (("-t", tags, all_tags), ("--require", required, features)):
        for name in asked:
            if name not in existing:
                _refuse(option, name, existing)


def refuse_nothing(
    checks: Sequence[Path], names: Sequence[str], tags: Sequence[str], chosen: Iterable[Match] = ()
) -> Never:
    """Raise ``BusbarError`` with the selection, and why none of the ``chosen`` checks can run."""
    reasons = [f"{names_text(of)}: {why}" for why, of in why_not(chosen).items()]
    options = [("-c", checks), ("-n", names), ("-t", tags)]
    selection = [f"{option} {value}" for option, values in options for value in values]
    what = f"no check can run here; {'; '.join(reasons)}" if reasons else "no check matches"
    raise BusbarError(what, where=" ".join(selection), hint="see busbar check --list")


def _refuse(option: str, given: str, existing: Iterable[str]) -> Never:
    hint = suggestion(given, sorted(existing)) + "; -n chooses by name" * (option == "-t")
    if "," in given:
        hint = f"repeat it: {' '.join(f'{option} {each}' for each in given.split(','))}"
    raise BusbarError(f"no check has {given!r}", where=option, hint=hint)
