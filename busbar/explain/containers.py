# SPDX-License-Identifier: MIT
"""Causes in an image: its preflight lines, and the difference to another delivery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from busbar.engine.reading import Cause, Evidence
from busbar.explain.catalog import CAUSES, declare

if TYPE_CHECKING:
    from busbar.preflight.layers import LayerDifference
    from busbar.preflight.model import PreflightLine

declare("image-broken", "image-slow-path", "deliveries-differ", "container-runtime")

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


def layer_cause(differences: Sequence[LayerDifference]) -> Cause:
    """Return why an image is slower than another delivery: the first layer that differs."""
    name = "deliveries-differ" if differences else "container-runtime"
    summary = "settings and libraries of both deliveries are the same"
    if differences:
        first = differences[0]
        summary = f"the first layer that differs: {first.layer}, {first.text}"
    return Cause(
        id=name,
        confidence="likely",
        evidence=tuple(
            Evidence("busbar preflight", number, f"{each.layer}: {each.text}")
            for number, each in enumerate(differences, 1)
        ),
        remedy=CAUSES[name].remedy,
        summary=summary,
    )
