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
