# SPDX-License-Identifier: MIT
"""The page of a cause, for docs/reference/ and ``busbar explain --cause``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from busbar.explain import rulebook  # noqa: F401 - rules declare what a cause hides
from busbar.explain.catalog import CAUSES, hidden_by
from busbar.parse.tables import load_all


@dataclass(frozen=True)
class Example:
    """Output that shows a cause, in the form that its tool prints."""

    tool: str
    """With the version, if the form depends on it."""
    source: str
    """Where the form comes from: a public thread, or documentation."""
    text: str
    site: str = ""
    """The site whose bands the example needs."""
    engine: str = ""
    """What copies between AMD GPUs, if the site's default is another one."""
    verdict: str = ""
    """What a check found of the run, where the output alone has no verdict."""


@cache
def examples() -> Mapping[str, Sequence[Example]]:
    """Return the examples by cause."""
    return {
        cause: [Example(**row) for row in rows]
        for document in load_all(Path(__file__).with_name("examples.yaml"))
        for cause, rows in document.items()
    }


def page(cause: str) -> Iterator[str]:
    """Yield the lines of the page in Markdown."""
    entry = CAUSES[cause]
    yield f"## {cause}"
    yield ""
    yield entry.meaning
    yield ""
    yield f"**Remedy:** {entry.remedy}"
    yield ""
    for each in entry.remedies:
        bounds = [f"from {each.since}"] * bool(each.since) + [f"before {each.before}"] * bool(
            each.before
        )
        versions = f"with {each.library} {' and '.join(bounds)}"
        of = f"if a line matches `{each.words}`" if each.words else versions
        yield f"**Remedy {of}:** {each.remedy}"
        yield ""
    if hides := [each for each in CAUSES if each in hidden_by(cause)]:
        yield f"**Hides:** {', '.join(f'`{each}`' for each in hides)}"
        yield ""
    for example in examples().get(cause, ()):
        link = example.source.startswith("https://")
        source = f"[source]({example.source})" if link else f"`{example.source}`"
        yield f"{example.tool} ({source}):"
        yield ""
        yield "```text"
        yield from example.text.rstrip().splitlines()
        yield "```"
        yield ""
