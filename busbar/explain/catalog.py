# SPDX-License-Identifier: MIT
"""Every cause and note that can be named, from ``causes.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import yaml


@dataclass(frozen=True)
class Entry:
    """One cause: what it means and what to do about it."""

    meaning: str
    remedy: str


def _load() -> tuple[dict[str, Entry], dict[str, str]]:
    text = files("busbar.explain").joinpath("causes.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    return {name: Entry(**entry) for name, entry in document["causes"].items()}, document["notes"]


CAUSES, NOTES = _load()
"""By id: causes, and the meaning of ids that are only ever notes."""


def page() -> str:
    """The text of ``docs/causes.md``."""
    lines = [
        "# Causes",
        "",
        "What `busbar explain` and a failing check can name. `make docs/causes.md` makes this",
        "page from `busbar/explain/causes.yaml`.",
        "",
        "| cause | meaning | remedy |",
        "|---|---|---|",
        *(f"| `{name}` | {entry.meaning} | {entry.remedy} |" for name, entry in CAUSES.items()),
        "",
        "| note | meaning |",
        "|---|---|",
        *(f"| `{name}` | {meaning} |" for name, meaning in NOTES.items()),
    ]
    return "\n".join(lines) + "\n"
