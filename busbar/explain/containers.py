# SPDX-License-Identifier: MIT
"""Causes that lie in an image: what preflight said of it, and where two deliveries differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from busbar.explain.catalog import CAUSES
from busbar.explain.model import Cause
from busbar.output.reading import Evidence
from busbar.preflight.layers import LayerDifference

SLOW = "image-slow-path"
_IDS = {"slow": SLOW, "broken": "image-broken"}


def image_causes(lines: Iterable[Mapping[str, str]]) -> Iterator[Cause]:
    """One for each line of ``busbar preflight --json`` that is not ready."""
    for number, line in enumerate(lines, 1):
        if line["status"] in _IDS:
            said = f"{line['name']} {line['status']}: {line['reason']}"
            yield Cause(
                id=_IDS[line["status"]],
                confidence="certain",
                evidence=(Evidence("busbar preflight", number, said),),
                remedy=line["remedy"] or "see docs/containers.md, Preflight",
                summary=f"preflight says of {line['name']}: {line['reason']}",
            )


def layer_cause(found: Sequence[LayerDifference]) -> Cause:
    """Why an image is slower than another delivery: the first layer in which they differ."""
    name = "deliveries-differ" if found else "container-runtime"
    summary = "settings and libraries of both deliveries are the same"
    if found:
        summary = f"the first layer that differs: {found[0].layer}, {found[0].text}"
    return Cause(
        id=name,
        confidence="likely",
        evidence=tuple(
            Evidence("busbar preflight", number, f"{each.layer}: {each.text}")
            for number, each in enumerate(found, 1)
        ),
        remedy=CAUSES[name].remedy,
        summary=summary,
    )
