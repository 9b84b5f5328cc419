# SPDX-License-Identifier: MIT
"""JSON of a dataclass that has every key, and each way to spoil one of its values."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

SPOILED: tuple[Any, ...] = (
    *(None, -1, 10**30, 1e300, float("nan"), "x" * 70_000),
    *([[]], {"": None}, "9999-12-31T23:59:59+00:00", "\x1b[2J\n$(id)"),
)


def filled(kind: Any, text: str) -> Any:
    """JSON that the type accepts: each list and mapping has one entry, each text is ``text``."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return {each.name: filled(hints[each.name], text) for each in fields(kind) if each.init}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Literal, Union, types.UnionType):
        return inner[0] if origin is Literal else filled(inner[0], text)
    if origin in (tuple, list):
        count = 1 if origin is list or inner[-1] is Ellipsis else len(inner)
        return [filled(each, text) for each in inner[:count]]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {text: filled(inner[1], text)}
    enum = isinstance(kind, type) and issubclass(kind, Enum)
    return next(iter(kind)).value if enum else {int: 1, float: 1.0, bool: False}.get(kind, text)


def places(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of each value of a document, its lists and objects too."""
    items: Any = ()
    if isinstance(node, dict):
        items = node.items()
    elif isinstance(node, list):
        items = enumerate(node)
    for key, value in items:
        yield (*at, key)
        yield from places(value, (*at, key))


def edits(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was changed, and the document with that change."""
    for *way, last in places(document):
        for value in SPOILED:
            edited = copy.deepcopy(document)
            node: Any = edited
            for step in way:
                node = node[step]
            node[last] = value
            yield f"{'.'.join(map(str, (*way, last)))} = {str(value)[:20]!r}", edited
