# SPDX-License-Identifier: MIT
"""The page of the causes."""

from __future__ import annotations

from busbar.explain.catalog import CAUSES, NOTES, hidden_by

from .markdown import quoted, table

CAUSES_INTRO = """\
# Causes

What `busbar explain` and failing checks name. The ids are stable. A cause hides its consequences:
if both are found, only the cause is named.
"""


def causes_page() -> str:
    """Return a table of all causes and one of all notes."""
    causes = (
        (
            f"`{name}`",
            entry.meaning,
            entry.remedy,
            quoted(each for each in CAUSES if each in hidden_by(name)),
        )
        for name, entry in CAUSES.items()
    )
    notes = ((f"`{name}`", meaning) for name, meaning in NOTES.items())
    lines = [CAUSES_INTRO, *table(("cause", "meaning", "remedy", "hides"), causes)]
    return "\n".join([*lines, *table(("note", "meaning"), notes)])
