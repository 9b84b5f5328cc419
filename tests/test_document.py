# SPDX-License-Identifier: MIT
"""A dataclass is written as JSON in the order of its keys, read back, and described."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from busbar.document import in_json, parse_document, read_document, to_json, written
from busbar.errors import BusbarError
from ci.docs.schemas import schema_of
from tests.cases import cases


def _tenths(value: float) -> float:
    return round(value, 1)


@dataclass(frozen=True)
class _Inner:
    first: int
    second: str = field(default="", metadata=written(omit=True))


@dataclass(frozen=True, kw_only=True)
class _Outer:
    """A document."""

    schema: Literal["busbar-outer/1"] = "busbar-outer/1"
    source: int = field(metadata=written("from"))
    """Where it begins."""
    inner: _Inner = field(metadata=written(inline=True))
    several: tuple[_Inner, ...] = ()
    rounded: float | None = field(default=None, metadata=written(by=_tenths))
    unwritten: str = field(default="", metadata=written(hidden=True))

    @property
    @in_json(after="source")
    def twice(self) -> int:
        """Two times."""
        return 2 * self.source

    @property
    @in_json()
    def last(self) -> bool:
        """The last key."""
        return True


@dataclass(frozen=True, kw_only=True)
class _Other:
    schema: Literal["busbar-other/1"] = "busbar-other/1"
    name: str


def test_keys_are_written_in_their_order() -> None:
    outer = _Outer(
        source=2, inner=_Inner(1), several=(_Inner(3, "x"),), rounded=1.26, unwritten="s"
    )
    assert list(to_json(outer).items()) == [
        *(("schema", "busbar-outer/1"), ("from", 2), ("twice", 4), ("first", 1)),
        *(("several", [{"first": 3, "second": "x"}]), ("rounded", 1.3), ("last", True)),
    ]
    assert to_json({"a": [outer]})["a"][0]["rounded"] == 1.3
    assert to_json(_Outer(source=2, inner=_Inner(1)))["rounded"] is None


def test_the_schema_has_the_keys_that_are_written() -> None:
    schema = schema_of(_Outer | _Other, "serialization")["$defs"]["_Outer"]
    keys = to_json(_Outer(source=2, inner=_Inner(1, "x")))
    assert list(schema["properties"]) == list(keys)
    assert schema["required"] == [key for key in keys if key != "second"]
    assert schema["properties"]["twice"] == {"type": "integer", "description": "Two times."}


@cases(
    ("text", "words"),
    [
        ('{"schema": "busbar-third/1"}', "has the schema 'busbar-third/1', not busbar-other/1 or"),
        ('{"schema": 3, "name": "x"}', "schema: Input should be 'busbar-other/1'"),
        ('{"schema": "busbar-other/1", "name": 3}', "name: Input should be a valid string"),
        ("{}", "name: Field required"),
        ("[]", "document: is not an object"),
        ("{", "Expecting"),
        ("[" + "[]," * 2_000_001, "has more than 4,000,000 values"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_document_is_refused(text: str | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BusbarError) as error:
        read_document(file, "give another", _Other, _Outer)
    assert words in error.value.what
    assert (error.value.where, error.value.hint) == (str(file), "give another")


def test_the_schema_names_the_document(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text('{"schema": "busbar-other/1", "name": "x", "later": "key"}')
    assert read_document(file, "", _Outer, _Other) == _Other(name="x")
    file.write_text('{"name": "x"}')
    assert read_document(file, "", _Other, _Outer) == _Other(name="x")
    assert parse_document(_Inner, {"first": 1}) == _Inner(1)


@dataclass(frozen=True)
class _Typed:
    number: float = 0.0
    whole: int = 0
    flag: bool = False
    by_number: dict[int, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *(("number", wrong) for wrong in ("100", True)),
        *(("whole", wrong) for wrong in ("100", True, 1.0)),
        *(("flag", wrong) for wrong in ("yes", 1)),
        ("by_number", {"3": "1"}),
    ],
)
def test_text_is_no_number_and_no_flag(key: str, wrong: object) -> None:
    right = {"number": 1, "whole": 1, "flag": True, "by_number": {"3": 1}}
    assert parse_document(_Typed, right) == _Typed(1.0, 1, True, {3: 1.0})
    with pytest.raises(ValueError, match=f"^{key}"):
        parse_document(_Typed, right | {key: wrong})
