# SPDX-License-Identifier: MIT
"""The checksum in each JSON document that Busbar reads back; standard library only.

It finds damage and edits, but no forger who computes it again: records are signed for that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

KEY = "sha256"
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_END = '"\n}\n'


class Sealed:
    """A document that ends with the checksum of its other keys."""

    __slots__ = ()


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the checksum of its values as the last key.

    The order of keys, blanks and escapes do not change it, nor do programs such as jq, which write
    1.0 as 1.
    """
    rest = {key: value for key, value in document.items() if key != KEY}
    text = _CANONICAL.encode(rest)
    for end in ",]}":
        text = text.replace(f".0{end}", end)
    return {**rest, KEY: _checksum(text)}


def sealed_text(document: Mapping[str, Any]) -> str:
    """Return a sealed object as text, with the checksum of the text as a second word of its seal.

    For a large file, that one is checked in a tenth of the time.
    """
    text = json.dumps(document, indent=1).replace("\x7f", r"\u007f") + "\n"  # as it is printed
    return f"{text.removesuffix(_END)} {_checksum(text)}{_END}"


def refuse_changed(document: Mapping[str, Any], text: str = "") -> None:
    """Raise ``ValueError`` for an object that was changed after it was sealed.

    ``text`` is the one that it was read from.
    """
    values, _, whole = str(document.get(KEY, "")).partition(" ")
    end = f" {whole}{_END}"
    if KEY not in document or (
        text.endswith(end) and _checksum(text.removesuffix(end) + _END) == whole
    ):
        return
    try:
        fits = sealed(document)[KEY] == values
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if not fits:
        what = f"was changed after it was written: its {KEY} does not fit"
        raise ValueError(f"{what}; restore it, or remove that key if the change is right")


def _checksum(text: str) -> str:
    return sha256(text.encode()).hexdigest()
