# SPDX-License-Identifier: MIT
"""The page of the causes."""

from __future__ import annotations

from busbar.explain.catalog import CAUSES, NOTES
from busbar.explain.page import page

from .markdown import table

CAUSES_INTRO = """\
# Causes

What `busbar explain` and failing checks name. The ids are stable. A cause hides its consequences:
if both are found, only the cause is named. `busbar explain --cause ID` prints one of these pages.
Each shows output by which the cause is recognised, in the form that its tool prints. The rules
accept other versions, prefixes and numbers.
"""


def causes_page() -> str:
    """Return a table of all causes, one of all notes, and the page of each cause."""
    causes = ((f"[`{name}`](#{name})", entry.meaning) for name, entry in CAUSES.items())
    notes = ((f"`{name}`", meaning) for name, meaning in NOTES.items())
    lines = [CAUSES_INTRO, *table(("cause", "meaning"), causes)]
    lines += table(("note", "meaning"), notes)
    for name in CAUSES:
        lines += page(name)
    return "\n".join(lines)
