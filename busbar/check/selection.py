# SPDX-License-Identifier: MIT
"""Select checks by name and tag; refuse names, tags and features that do not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Never

from busbar.check.listing import Match
from busbar.errors import BusbarError


def selected(matches: Iterable[Match], names: Sequence[str], tags: Sequence[str]) -> list[Match]:
    """Return the checks with one of the names and one of the tags; an empty list means any."""
    return [
        match
        for match in matches
        if (not names or any(_has_name(match.name, name) for name in names))
        and (not tags or set(tags) & set(match.tags))
    ]


def expression(pattern: str) -> str:
    """Return the regular expression that ``reframe -n`` needs for a name.

    A name with parameters, such as ``pt2pt %bench=osu_bw``, may omit parameters.
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
    """Raise ``BusbarError`` for a name, tag or required feature that no check has.

    ``provided`` are the features of the environments.
    """
    for pattern in names:
        # After a slash comes ReFrame's hash of a check.
        if not pattern.startswith("/") and not selected(matches, [pattern], ()):
            _refuse("-n", pattern, {match.test for match in matches})
    all_tags = {tag for match in matches for tag in match.tags}
    features = {feature for match in matches for feature in match.features} | set(provided)
    for option, asked, existing in (("-t", tags, all_tags), ("--require", required, features)):
        for name in asked:
            if name not in existing:
                _refuse(option, name, existing)


def refuse_nothing(
    checks: Sequence[Path], names: Sequence[str], tags: Sequence[str], reasons: Sequence[str] = ()
) -> Never:
    """Raise ``BusbarError`` with what was selected and why none of it can run here."""
    options = [("-c", checks), ("-n", names), ("-t", tags)]
    selection = [f"{option} {value}" for option, values in options for value in values]
    raise BusbarError(
        f"no check can run here: {'; '.join(dict.fromkeys(reasons))}"
        if reasons
        else "no check matches",
        where=" ".join(selection),
        hint="see busbar check --list",
    )


def _refuse(option: str, given: str, existing: Iterable[str]) -> Never:
    names = sorted(existing)
    near = difflib.get_close_matches(given, names, n=3) or names
    raise BusbarError(
        f"no check has {given!r}", where=option, hint=f"there are, among others: {', '.join(near)}"
    )


def _has_name(name: str, pattern: str) -> bool:
    """Match as ``reframe -n``, which ignores the spaces of a name."""
    try:
        return bool(re.search(expression(pattern), name.replace(" ", "")))
    except re.error as error:
        raise BusbarError(
            f"{pattern!r} is not a valid regular expression: {error}", where="-n"
        ) from error
