# SPDX-License-Identifier: MIT
"""Lines that colours, titles and stray bytes run through are read like plain ones."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, strategies as st

from busbar.parse.text import blocks

ESCAPED = st.lists(
    st.sampled_from([b"\x1b", b"\0", b"\r", b"[", b"]", b"2J", b"\x07", b"\n", b"\\", b"x", b" "])
).map(b"".join)


def clean(data: bytes) -> bytes:
    return b"\n".join(block for _, block in blocks(io.BytesIO(data)))


@given(ESCAPED)
def test_cleaning_twice_changes_nothing_and_loses_no_line(data: bytes) -> None:
    once = clean(data)
    assert clean(once) == once
    assert not re.search(rb"[\x1b\0\r]", once)
    assert once.count(b"\n") == data.count(b"\n")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\x1b[1;31mb\x1b[0mc", b"abc"),
        (b"\x1b]0;title\x07a\x1b]8;;http://h\x1b\\b", b"ab"),
        (b"\x1bca\x1b(0b\x1b#8c\x1b7d\x1b8e\x1bMf", b"abcdef"),
        (b"\x1b\0[2Ja", b"a"),
        (b"\x1b]0;never ended", b"0;never ended"),
        (b"\x1b]0;\nsrun: error: killed\n\x07", b"0;\nsrun: error: killed\n\x07"),
    ],
)
def test_sequences(data: bytes, text: bytes) -> None:
    assert clean(data) == text
