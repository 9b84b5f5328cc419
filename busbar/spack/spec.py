# SPDX-License-Identifier: MIT
"""Check a concrete package against a simple spec: ``@5.0.8 +cuda ~knem fabrics=ucx,ofi``."""

from __future__ import annotations

import re

from busbar.errors import BusbarError
from busbar.spack.lock import Node

_TOKEN = re.compile(
    r"@(?P<version>[^\s+~@]+)|\+(?P<on>[\w-]+)|~(?P<off>[\w-]+)|(?P<key>[\w-]+):?=(?P<value>\S+)"
)


def unmet(node: Node, spec: str) -> list[str]:
    """Return the parts of ``spec`` that ``node`` does not meet; a leading package name is ignored.

    A version matches as a prefix, as in Spack (``@5.0`` and ``@4:5.0`` accept 5.0.8). Raises
    ``BusbarError`` for a spec with other parts, such as dependencies: they would not be checked.
    """
    text = spec.removeprefix(node.name).strip()
    missing = []
    position = 0
    for match in _TOKEN.finditer(text):
        if text[position : match.start()].strip():
            break
        position = match.end()
        if not _meets(node, match):
            missing.append(match.group())
    if text[position:].strip():
        raise BusbarError(
            f"cannot be checked without Spack: {text[position:].strip()!r} of {spec!r}",
            hint="write versions and variants only",
        )
    return missing


def _meets(node: Node, match: re.Match[str]) -> bool:
    if versions := match["version"]:
        return any(_in_range(node.version, each) for each in versions.split(","))
    if match["on"] or match["off"]:
        return node.parameters.get(match["on"] or match["off"]) is bool(match["on"])
    value = node.target if match["key"] == "target" else node.parameters.get(match["key"])
    values = {str(v) for v in value} if isinstance(value, list) else {str(value)}
    return set(match["value"].split(",")) <= values


def _in_range(version: str, wanted: str) -> bool:
    if wanted.startswith("="):
        return version == wanted[1:]
    first, colon, last = wanted.partition(":")
    if not colon:
        return version == wanted or re.match(rf"{re.escape(wanted)}[.-]", version) is not None
    parts = _parts(version)
    upper = _parts(last)
    return _parts(first) <= parts and (not last or parts[: len(upper)] <= upper)


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
