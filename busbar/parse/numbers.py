# SPDX-License-Identifier: MIT
"""Numbers and JSON in the output of tools, of any size and form, without surprises.

`int` and `float` raise on some digits of other scripts, take time in proportion to the square of
the length, and return what overflows later. Parsers use these functions instead.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any

MOST = 10**18 - 1
"""The largest whole number: no size, rank, process id or count of a real run is larger."""
_SAFE = 18
"""A number of fewer digits is below `MOST`."""
_LONGEST = 64
_MOST_JSON_DIGITS = 39  # 128 bits: ids have that many
_WHOLE = re.compile(r"[+-]?[0-9]{1,64}")
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?|[+-]?(?:inf|nan)")


def is_whole(text: str) -> bool:
    """Return whether ``text`` is a number of at most 18 ASCII digits, without a sign."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def whole(text: str | bytes) -> int | None:
    """Return the whole number in ``text``; None if it is another text or beyond `MOST`."""
    word = _word(text)
    if len(word) > _LONGEST or not _WHOLE.fullmatch(word):
        return None
    value = int(word)
    return value if abs(value) <= MOST else None


def count(text: str | bytes) -> int:
    """Return a number whose digits a pattern has found; `MOST` for more, 0 without digits."""
    if len(text) < _SAFE and text.isascii() and text.isdigit():
        return int(text)
    word = _word(text[: _LONGEST + 1])
    if len(word) > _LONGEST:
        return MOST
    return min(int(word), MOST) if _WHOLE.fullmatch(word) else 0


def real(text: str | bytes) -> float | None:
    """Return the number in ``text``, which can be ``inf`` or ``nan``; None for other text.

    None, too, for digits beyond the range of a float: no tool prints them.
    """
    word = _word(text)
    if len(word) > _LONGEST or not _REAL.fullmatch(word.lower()):
        return None
    value = float(word)
    return None if math.isinf(value) and "inf" not in word.lower() else value


def real_or_nan(text: str | bytes) -> float:
    """Return the number in ``text``, and NaN for other text."""
    value = real(text)
    return math.nan if value is None else value


def load_json(text: str | bytes, *, once: bool = False) -> Any:
    """Return the document in ``text``; with ``once`` no object may have a key twice.

    Raises only ``ValueError``: also for a document that is nested too deep, for a number of more
    than 39 digits or beyond the range of a float, and for text that is not UTF-8.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        return _decoder(once).decode(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise ValueError(f"text after a JSON value, in line {error.lineno}") from error
        raise json.JSONDecodeError(f"is not JSON ({error.msg})", error.doc, error.pos) from error
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


@cache
def _decoder(once: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_int=_json_int, parse_float=_json_float, object_pairs_hook=_object if once else None
    )


def json_whole(value: object) -> int:
    """Return a value of a JSON document as a whole number of at most 18 digits.

    Raises ``ValueError`` for others.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= MOST:
        return int(value)
    number = whole(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > MOST:
        raise ValueError(f"not a whole number of at most 18 digits: {str(value)[:40]!r}")
    return number


def json_real(value: object) -> float:
    """Return a value of a JSON document as a number. Raises ``ValueError`` for others."""
    number = real(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"not a number: {str(value)[:40]!r}")
    return float(number)


def _word(text: str | bytes) -> str:
    return (text if isinstance(text, str) else text.decode("ascii", "replace")).strip()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _json_int(digits: str) -> int:
    if len(digits) > _MOST_JSON_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _json_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"a number that is out of range: {digits[:40]}")
    return value
