# SPDX-License-Identifier: MIT
"""JSON documents: a command writes, reads and documents them through one dataclass.

The keys of an object are the fields of its class in order, followed by properties marked with
:func:`in_json`. :func:`written` declares keys that differ from their fields. The classes need only
the standard library; pydantic reads files and generates JSON schemas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from busbar import seal
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
Sealed = seal.Sealed
Contradictions = Iterator[tuple[str, str]]
"""Keys of a document, as ``results.3.limit``, and what is wrong with each."""
_EMPTY: tuple[object, ...] = (None, "", (), [], {})
_MOST_BYTES, _MOST_VALUES = 2**26, 4_000_000
"""The results of 100,000 readings take 31 MiB; reading them takes 2 s and 200 MiB."""
_SLICE = 1000
"""Number of mapping entries for which errors are kept."""


@dataclass(frozen=True)
class JsonKey:
    """How to write an attribute of a class."""

    attribute: str
    key: str = ""
    """The key, if it differs from the attribute name."""
    by: Callable[[Any], Any] | None = None
    """Converts a value other than None."""
    omit: bool = False
    """Whether to omit the key for None and for empty values."""
    inline: bool = False
    """Whether the keys of the value replace this key."""
    hidden: bool = False
    """Whether to omit it always."""
    after: str = ""
    """For a property, the attribute after which it is written; empty for the last one."""


def written(
    key: str = "",
    *,
    by: Callable[[Any], Any] | None = None,
    omit: bool = False,
    inline: bool = False,
    hidden: bool = False,
) -> dict[str, JsonKey]:
    """Return ``metadata`` for a field that is written differently (:class:`JsonKey`)."""
    return {_RULE: JsonKey("", key, by, omit, inline, hidden)}


def in_json(after: str = "", **options: Any) -> Callable[[_PROPERTY], _PROPERTY]:
    """Mark a property function so that its value is written, too."""

    def mark(function: _PROPERTY) -> _PROPERTY:
        setattr(function, _RULE, JsonKey(function.__name__, after=after, **options))
        return function

    return mark


@cache
def keys_of(kind: Any) -> tuple[JsonKey, ...]:
    """Return the keys of a class in order."""
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
    """Return a document, or part of one, in types that ``json`` can write."""
    if value is None or isinstance(value, str | int):  # most values are plain
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None  # JSON has no NaN or infinity
    if is_dataclass(value):
        found = dict(_items(value))
        return seal.sealed(found) if isinstance(value, Sealed) else found
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items()}
    return [to_json(each) for each in value] if isinstance(value, list | tuple) else value


def json_text(document: Sealed) -> str:
    """Return the text of a file with a document."""
    return json.dumps(to_json(document), indent=1) + "\n"


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

    # A class inherits the configuration of the enclosing class.
    adapter = TypeAdapter(tuple[kind], config=ConfigDict(allow_inf_nan=not finite))
    return SchemaValidator(_strict(adapter.core_schema))


def _strict(schema: Any) -> Any:
    """Return a pydantic schema that takes no text for a number, and no number for a flag.

    It stops early at errors in lists and mappings: pydantic would keep every error of millions of
    wrong rows. Keys of mappings are text in JSON, also where they are numbers.
    """
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {k: v if k == "keys_schema" else _strict(v) for k, v in schema.items()}
    if schema.get("type") in ("int", "float", "bool"):
        schema["strict"] = True
    if schema.get("type") in ("list", "tuple"):
        schema["fail_fast"] = True
    if schema.get("type") != "dict":
        return schema
    from pydantic_core import core_schema  # noqa: PLC0415 - as above

    return core_schema.no_info_wrap_validator_function(_in_slices, schema)


def _in_slices(value: Any, validated: Callable[[Any], Any]) -> Any:
    """Validate a mapping in slices: pydantic cannot stop early in a mapping."""
    if not isinstance(value, Mapping) or len(value) <= _SLICE:
        return validated(value)
    found: dict[Any, Any] = {}
    items = iter(value.items())
    while part := dict(islice(items, _SLICE)):
        found |= validated(part)
    return found


def parse_document(kind: Callable[..., _T], data: object, *, finite: bool = False) -> _T:
    """Return the document in JSON data; raise ``ValueError`` that names the wrong key.

    With ``finite``, NaN and infinity are errors, too. A class whose values must agree with each
    other has a method ``contradictions``, which yields keys and what is wrong with them.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - as above

    try:
        document: _T = _validator(kind, finite).validate_python((data,))[0]
    except ValidationError as error:
        raise ValueError(wrong_key(error)) from error
    agreed(document)
    if isinstance(document, Sealed) and isinstance(data, Mapping):
        seal.refuse_changed(data)  # last: an error above names the key
    return document


def agreed(document: _T) -> _T:
    """Return a document; raise ``ValueError`` for the first key that contradicts others."""
    for key, what in getattr(document, "contradictions", tuple)():
        raise ValueError(f"{key}: {what}")
    return document


def wrong_key(error: ValidationError) -> str:
    """Return the first wrong key and its error."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # pydantic's message contains the class name.
    what = "is not an object" if first["type"] == "dataclass_type" else first["msg"]
    return f"{'.'.join(map(str, first['loc'][1:])) or 'document'}: {what}"


def load(text: str) -> Any:
    """Parse untrusted JSON; raise ``ValueError``, also for millions of values."""
    if sum(map(text.count, "[{,")) > _MOST_VALUES:
        raise ValueError(f"has more than {_MOST_VALUES:,} values")
    return numbers.load_json(text, once=True)


def read_document(path: Path, hint: str, kind: Callable[..., _T], *others: Any) -> _T:
    """Return the document in a file; its key ``schema`` selects ``kind`` or one of ``others``.

    Raises ``BusbarError`` with ``hint`` if it cannot be read or is a different document.
    """
    by_schema: dict[str, Callable[..., _T]] = {_schema_of(each): each for each in (kind, *others)}
    with file_error("cannot be read", path, hint), value_error("{}", path, hint):
        data = load(read_text(path, _MOST_BYTES))
        schema = data.get("schema", _schema_of(kind)) if isinstance(data, Mapping) else None
        if isinstance(schema, str) and schema not in by_schema:
            other = schema.partition("/")[0] in {each.partition("/")[0] for each in by_schema}
            again = ": written by another version of Busbar; write it again" * other
            raise ValueError(f"has the schema {schema!r}, not {' or '.join(by_schema)}{again}")
        kind = by_schema[schema] if isinstance(schema, str) else kind
        return parse_document(kind, data, finite=True)


def _schema_of(kind: Any) -> str:
    return str(kind.__dataclass_fields__["schema"].default)


@dataclass(frozen=True)
class ErrorRow:
    """Invalid input or a missing prerequisite."""

    what: str = field(metadata=written(by=redact))
    """The error, in one sentence."""
    where: str = field(metadata=written(by=redact))
    """The file with the key or line; empty if not applicable."""
    hint: str = field(metadata=written(by=redact))
    """The next step; may be empty."""


@dataclass(frozen=True, kw_only=True)
class ErrorDocument:
    """Printed by every command with ``--json`` on exit status 2."""

    schema: Literal["busbar-error/1"] = "busbar-error/1"
    """The schema of this document."""
    command: str
    """The subcommand."""
    error: ErrorRow
    """The reason why it did not run."""
