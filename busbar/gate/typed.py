# SPDX-License-Identifier: MIT
"""Read JSON into the dataclasses of the gate, with the standard library only."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from math import inf
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def typed(kind: Any, value: Any, key: str = "") -> Any:
    """Return a JSON value as a type; raise ``ValueError`` that names the first wrong key.

    Numbers must be finite and not negative.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else typed(inner[0], value, key)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = get_type_hints(kind)
        if other := value.keys() - hints.keys():
            raise ValueError(f"{key}{'.' * bool(key)}{min(other)}: is unknown")
        return kind(**typed_items({name: hints[name] for name in value}, value, key))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return typed_items(dict.fromkeys(value, inner[1]), value, key)
    if origin in (tuple, list) and isinstance(value, list | tuple):
        return origin(typed(inner[0], each, f"{key}.{at}") for at, each in enumerate(value))
    if origin is Literal and isinstance(value, str) and value in inner:
        return value
    if kind in (int, float):
        number = isinstance(value, int | kind) and not isinstance(value, bool)
        right = number and 0 <= value < inf
    else:
        right = isinstance(kind, type) and isinstance(value, kind)
    if right:
        return value
    raise ValueError(f"{key or 'document'}: has the wrong type or value, {str(value)[:40]!a}")


def typed_items(kinds: Mapping[str, Any], value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the items of a JSON object as types, by key."""
    return {
        name: typed(kind, value[name], f"{key}.{name}" if key else name)
        for name, kind in kinds.items()
    }
