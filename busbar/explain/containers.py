# SPDX-License-Identifier: MIT
"""Causes in an image: its preflight lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from busbar.engine.reading import Cause, Evidence
from busbar.explain.catalog import declare

if TYPE_CHECKING:
    from busbar.preflight.model import PreflightLine

declare("image-broken", "image-slow-path")

SLOW = "image-slow-path"
_IDS = {"slow": SLOW, "broken": "image-broken"}


def image_causes(lines: Iterable[PreflightLine]) -> Iterator[Cause]:
    """Yield a cause for each line of preflight that is not ready."""
    for number, line in enumerate(lines, 1):
        if line.status in _IDS:
            text = f"{line.name} {line.status}: {line.reason}"
            yield Cause(
                id=_IDS[line.status],
                confidence="certain",
                evidence=(Evidence("busbar preflight", number, text),),
                remedy=line.remedy or "see docs/containers.md, Preflight",
                summary=f"preflight says of {line.name}: {line.reason}",
            )
