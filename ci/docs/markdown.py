# SPDX-License-Identifier: MIT
"""Markdown, as the pages use it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def plain(text: str | None) -> str:
    """A docstring as one line of Markdown that fits in a table."""
    one_line = " ".join((text or "").split())
    one_line = re.sub(r":\w+:`(.+?)`", r"`\1`", re.sub(r"``(.+?)``", r"`\1`", one_line))
    return one_line.replace("|", "\\|")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A Markdown table and an empty line."""
    heads = list(head)
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def quoted(words: Iterable[object]) -> str:
    """Words as code, separated by commas."""
    return ", ".join(f"`{word}`" for word in words)
