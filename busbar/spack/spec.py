# SPDX-License-Identifier: MIT
"""Whether a concrete package meets a simple spec: ``@5.0.8 +cuda ~knem fabrics=ucx,ofi``."""

from __future__ import annotations

import re

from busbar.errors import BusbarError
from busbar.spack.lock import Node

_TOKEN = re.compile(
    r"@(?P<version>[^\s+~@]+)|\+(?P<on>[\w-]+)|~(?P<off>[\w-]+)|(?P<key>[\w-]+):?=(?P<value>\S+)"
)


def unmet(node: Node, spec: str) -> list[str]:
    """The parts of ``spec`` that ``node`` does not meet; a leading package name is skipped.

    A version matches itself and what it is a prefix of, as in Spack (``@5.0`` takes 5.0.8). Raises
    ``BusbarError`` for a spec with anything else, such as dependencies: it would go unchecked.
    """
    text = spec.removeprefix(node.name).strip()
    missing = []
    position = 0
    for match in _TOKEN.finditer(text):
        if text[position : match.start()].strip():
            break
        position = match.end()
        if not _holds(node, match):
            missing.append(match[0])
    if text[position:].strip():
        raise BusbarError(
            f"cannot be checked without Spack: {text[position:].strip()!r} of {spec!r}",
            hint="write versions and variants only",
        )
    return missing


def _holds(node: Node, match: re.Match[str]) -> bool:
    if version := match["version"]:
        return node.version == version or node.version.startswith(f"{version}.")
    if match["on"] or match["off"]:
        return node.parameters.get(match["on"] or match["off"]) is bool(match["on"])
    found = node.parameters.get(match["key"])
    if match["key"] == "target":
        found = node.target
    values = {str(value) for value in found} if isinstance(found, list) else {str(found)}
    return set(match["value"].split(",")) <= values
