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


class Sealed:
    """A document that ends with the checksum of its other keys."""

    __slots__ = ()


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the checksum of its values as the last key.

    The order of keys, blanks and escapes do not change it, nor do programs such as jq, which write
    1.0 as 1.
    """
    rest = {key: value for key, value in document.items() if key != KEY}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    for end in ",]}":
        text = text.replace(f".0{end}", end)
    return {**rest, KEY: sha256(text.encode()).hexdigest()}


def refuse_changed(document: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for an object that was changed after it was sealed."""
    try:
        fits = KEY not in document or sealed(document)[KEY] == document[KEY]
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if not fits:
        what = f"was changed after it was written: its {KEY} does not fit"
        raise ValueError(f"{what}; restore it, or remove that key if the change is right")
