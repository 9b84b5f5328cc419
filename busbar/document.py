# SPDX-License-Identifier: MIT
"""JSON documents: one dataclass is what a command writes, reads back and documents.

The keys of an object are the fields of its class in their order, then its properties that are
marked with :func:`in_json`. :func:`written` says where a key differs from its field. The classes
need only the standard library; pydantic reads files, and describes the classes as JSON schemas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from busbar.boundary import read_text
from busbar.errors import file_error, value_error
from busbar.parse import numbers
from busbar.redact import redact

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import SchemaValidator

_T = TypeVar("_T")
_PROPERTY = TypeVar("_PROPERTY", bound=Callable[..., Any])
_RULE = "busbar.document"
_EMPTY: tuple[object, ...] = (None, "", (), [], {})
_MOST_BYTES, _MOST_VALUES = 2**26, 4_000_000
"""The results of 100,000 readings have 31 MiB, and are read in 2 s and 200 MiB."""
_SLICE = 1000
"""Entries of a mapping whose errors are kept."""


@dataclass(frozen=True)
class JsonKey:
    """How an attribute of a class is written."""

    attribute: str
    key: str = ""
    """The key, if it is not the name of the attribute."""
    by: Callable[[Any], Any] | None = None
    """Converts a value other than None."""
    omit: bool = False
    """Whether the key is left out for None, and for an empty value."""
    inline: bool = False
    """Whether the keys of the value stand in place of this one."""
    hidden: bool = False
    """Whether it is not written."""
    after: str = ""
    """Of a property, the attribute that it follows; the last one if it is empty."""


def written(
    key: str = "",
    *,
    by: Callable[[Any], Any] | None = None,
    omit: bool = False,
    inline: bool = False,
    hidden: bool = False,
) -> dict[str, JsonKey]:
    """Return the ``metadata`` of a field whose key differs from it (:class:`JsonKey`)."""
    return {_RULE: JsonKey("", key, by, omit, inline, hidden)}


def in_json(after: str = "", **options: Any) -> Callable[[_PROPERTY], _PROPERTY]:
    """Mark the function of a property whose value is written, too."""

    def mark(function: _PROPERTY) -> _PROPERTY:
        setattr(function, _RULE, JsonKey(function.__name__, after=after, **options))
        return function

    return mark


@cache
def keys_of(kind: Any) -> tuple[JsonKey, ...]:
    """Return the keys of a class in their order."""
    found = []
    for each in fields(kind):
        rule = each.metadata.get(_RULE, JsonKey(""))
        found.append(JsonKey(**{**vars(rule), "attribute": each.name}))
    for name in dict.fromkeys(name for each in kind.__mro__[::-1] for name in vars(each)):
        rule = getattr(getattr(getattr(kind, name, None), "fget", None), _RULE, None)
        if rule:
            names = [each.attribute for each in found]
            at = names.index(rule.after) + 1 if rule.after else len(found)
            found.insert(at, rule)
    return tuple(
        JsonKey(**{**vars(each), "key": each.key or each.attribute})
        for each in found
        if not each.hidden
    )


def to_json(value: Any) -> Any:
    """Return what ``json`` writes for a document or a part of one."""
    if value is None or isinstance(value, str | int):  # most values are plain
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None  # JSON has no such number
    if is_dataclass(value):
        return dict(_items(value))
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items()}
    return [to_json(each) for each in value] if isinstance(value, list | tuple) else value


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    kind: Any = type(value)
    for rule in keys_of(kind):
        each = getattr(value, rule.attribute)
        if rule.omit and each in _EMPTY:
            continue
        if rule.by and each is not None:
            each = rule.by(each)
        if rule.inline:
            yield from _items(each)
        else:
            yield rule.key, to_json(each)


@cache
def _validator(kind: Any, finite: bool) -> SchemaValidator:
    from pydantic import ConfigDict, TypeAdapter  # noqa: PLC0415 - most commands read none
    from pydantic_core import SchemaValidator  # noqa: PLC0415

    # A class takes its configuration from what it is in.
    adapter = TypeAdapter(tuple[kind], config=ConfigDict(allow_inf_nan=not finite))
    return SchemaValidator(_ending_early(adapter.core_schema))


def _ending_early(schema: Any) -> Any:
    """Return a schema of pydantic whose lists and mappings end early at what is wrong.

    Otherwise pydantic keeps every error of millions of wrong rows.
    """
    if isinstance(schema, list):
        return [_ending_early(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _ending_early(value) for key, value in schema.items()}
    if schema.get("type") in ("list", "tuple"):
        schema["fail_fast"] = True
    if schema.get("type") != "dict":
        return schema
    from pydantic_core import core_schema  # noqa: PLC0415 - as above

    return core_schema.no_info_wrap_validator_function(_in_slices, schema)


def _in_slices(value: Any, validated: Callable[[Any], Any]) -> Any:
    """Validate the entries of a mapping by slices, as pydantic has no early end for mappings."""
    if not isinstance(value, Mapping) or len(value) <= _SLICE:
        return validated(value)
    found: dict[Any, Any] = {}
    items = iter(value.items())
    while part := dict(islice(items, _SLICE)):
        found |= validated(part)
    return found


def parse_document(kind: Callable[..., _T], data: object, *, finite: bool = False) -> _T:
    """Return the document in data of JSON; raise ``ValueError`` that names the wrong key.

    With ``finite``, numbers that JSON does not have are wrong, too.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - as above

    try:
        document: _T = _validator(kind, finite).validate_python((data,))[0]
    except ValidationError as error:
        raise ValueError(wrong_key(error)) from error
    return document


def wrong_key(error: ValidationError) -> str:
    """Return the first key that is wrong, and what is wrong with it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # pydantic names our class there.
    what = "is not an object" if first["type"] == "dataclass_type" else first["msg"]
    return f"{'.'.join(map(str, first['loc'][1:])) or 'document'}: {what}"


def load(text: str) -> Any:
    """Return the JSON in a text of others; raise ``ValueError``, also for millions of values."""
    if sum(map(text.count, "[{,")) > _MOST_VALUES:
        raise ValueError(f"has more than {_MOST_VALUES:,} values")
    return numbers.load_json(text, once=True)


def read_document(path: Path, hint: str, *kinds: Any) -> Any:
    """Return the document of a file; the key ``schema`` decides which of ``kinds`` it is.

    Raises ``BusbarError`` with ``hint`` if it cannot be read or is another document.
    """
    by_schema: dict[Any, Any] = {_schema_of(kind): kind for kind in kinds}
    with file_error("cannot be read", path, hint), value_error("{}", path, hint):
        data = load(read_text(path, _MOST_BYTES))
        schema = data.get("schema", _schema_of(kinds[0])) if isinstance(data, Mapping) else None
        if isinstance(schema, str) and schema not in by_schema:
            other = schema.partition("/")[0] in {each.partition("/")[0] for each in by_schema}
            again = ": another version of Busbar wrote it; write it again with this one" * other
            raise ValueError(f"has the schema {schema!r}, not {' or '.join(by_schema)}{again}")
        kind = by_schema[schema] if isinstance(schema, str) else kinds[0]
        return parse_document(kind, data, finite=True)


def _schema_of(kind: Any) -> str:
    return str(kind.__dataclass_fields__["schema"].default)


@dataclass(frozen=True)
class ErrorRow:
    """Invalid input or a missing prerequisite."""

    what: str = field(metadata=written(by=redact))
    """What is wrong, in one sentence."""
    where: str = field(metadata=written(by=redact))
    """The file with the key or line; empty if there is none."""
    hint: str = field(metadata=written(by=redact))
    """What to do; empty if there is nothing to say."""


@dataclass(frozen=True, kw_only=True)
class ErrorDocument:
    """What every command with ``--json`` prints with exit status 2."""

    schema: Literal["busbar-error/1"] = "busbar-error/1"
    """The schema of this document."""
    command: str
    """The subcommand."""
    error: ErrorRow
    """Why it did not run."""
