# SPDX-License-Identifier: MIT
"""Explain errors in values of files in plain words, with the next step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from pydantic import BaseModel

from busbar.errors import suggestion
from busbar.parse.tables import beside
from busbar.units import MIB, SECONDS, duration, parse_bytes

_SHOWN = 60
"""Characters of a wrong value that an error shows."""
_WORDS = beside(__file__)


def explained(model: type[BaseModel], error: Any) -> tuple[str, str]:
    """Return what is wrong and what to do for one entry of pydantic's ``errors()``."""
    location = [step for step in error["loc"] if step != "[key]"]
    match error["type"]:
        case "extra_forbidden":
            return "unknown key", suggestion(str(location[-1]), keys_of(model, location[:-1]))
        case "missing":
            return _missing(location)
        case "value_error":
            rule, _, hint = str(error["ctx"]["error"]).partition("; ")
            return rule, hint or "correct the file"
    rule, hint = _value(error)
    got = f", got {_short(error['input'])}"
    return f"{rule}{got}", hint


def _value(error: Any) -> tuple[str, str]:
    """Return the rule that a value breaks, and what to do."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    rule, hint = f"{error['msg'][:1].lower()}{error['msg'][1:]}", "correct the value"
    if kind == "literal_error":
        choices = [c.strip("'") for c in context["expected"].replace(" or ", ", ").split(", ")]
        rule = f"must be {context['expected']}"
        hint = suggestion(str(value), choices, "choose one of these")
    elif kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        rule = _WORDS["patterns"].get(pattern, f"must match {pattern}")
        forms = (value.lower(), value.upper(), re.sub(r"[^\w.-]+", "-", value.lower()))
        if meant := next((each for each in forms if re.search(pattern, each)), ""):
            hint = f"did you mean {meant!r}?"
    elif kind in _WORDS["types"]:
        words = _WORDS["types"][kind]
        rule, hint = f"must be {words}", _WORDS["hints"].get(words, f"write {words}")
        if kind == "string_type" and isinstance(value, int | float):
            hint = f'write it in quotes: "{value}"'
        elif words.endswith("number") and isinstance(value, str):
            hint = _instead_of_text(str(error["loc"][-1]), value, hint)
    elif kind in _WORDS["bounds"]:
        words, key = _WORDS["bounds"][kind]
        rule = f"{words} {context[key]:g}"
        if key.endswith("length"):
            rule += " entry" if context[key] == 1 else " entries"
    elif kind == "string_too_short":
        rule, hint = "must not be empty", "write a value, or remove the key"
    return rule, hint


def _instead_of_text(key: str, text: str, hint: str) -> str:
    """Return what to write instead of a text where a number belongs."""
    if key == "nodes" and text[:1].isalpha():
        return f"write nodelist: {text}; nodes is their number"
    return hint.replace("the number", _number(key, text) or "the number", 1)


def _number(key: str, text: str) -> str:
    """Return the number that a text means in the unit of a key, such as 24 for hours: 1d."""
    if key in ("hours", "seconds") and (time := duration(text.lower())):
        return f"{time / SECONDS[key[0]]:g}"
    with suppress(ValueError):  # not a size: there is nothing to suggest
        return str(parse_bytes(text) // MIB) if key.endswith("_mib") else ""
    return ""


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def keys_of(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Return the keys that a file can have at a location."""
    schema = _schema(model)
    parts = [schema]
    for step in location:
        parts = [inner for part in parts for inner in _inside(part, step, schema.get("$defs", {}))]
    return [key for part in parts for key in part.get("properties", ())]


def _inside(part: Any, step: int | str, definitions: Any) -> Iterator[Any]:
    """Yield the schemas of a field, an entry of a list, or a value of a mapping."""
    inner = part.get("properties", {}).get(step)
    if inner is None and isinstance(step, int):
        inner = part.get("items")
    elif inner is None:
        values = part.get("patternProperties", {}).values()
        inner = next(iter(values), part.get("additionalProperties"))
    if isinstance(inner, dict):
        for each in inner.get("anyOf", [inner]):
            yield definitions.get(each.get("$ref", "").rpartition("/")[2], each)


def _missing(location: Sequence[int | str]) -> tuple[str, str]:
    if location and isinstance(location[-1], int):
        return f"has no entry {location[-1] + 1}", "add it"
    return "missing key", "add it"


def _short(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
