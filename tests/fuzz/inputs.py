# SPDX-License-Identifier: MIT
"""Inputs: the recorded outputs and what has crashed a parser, altered at random."""

from __future__ import annotations

import gzip
import random
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CRASHES = Path(__file__).with_name("crashes")
LONGEST = 100_000
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_TOKENS = (
    *(
        b"9" * 400,
        b"9" * 5000,
        b"1e400",
        b"-1",
        b"0",
        b"inf",
        b"nan",
        b"-0.0",
        b"18446744073709551616",
    ),
    *("²".encode(), "٣٢".encode(), "\u202e".encode(), "\u2028".encode(), b"\xff", b"\xed\xa0\x80"),
    *(
        b"\0",
        b"\r",
        b"\x1b[2J",
        b"\x1b]0;x\x07",
        b"\x1b\0[2J",
        b"\xc2\x9b2J",
        b"\x7f",
        b"\t",
        b" " * 500,
    ),
    *(
        b'"',
        b"'",
        b"\\",
        b"{",
        b"}",
        b"[" * 2000,
        b"null",
        b"[]",
        b"{}",
        b"true",
        b",",
        b":",
        b"=",
        b"$(x)",
    ),
    *(
        b"-a" * 2000,
        b"a=" * 2000,
        b"://" * 500,
        b"token=",
        b"https://u:p@h",
        b"%s",
        b"&x",
        b"*x",
        b"<<: ",
        b"!!int ",
    ),
    *(each * (20_000 // len(each)) for each in (b"\n", b"\t", b"w", b"1", b"=", b" \n", b"x1 ")),
)


@cache
def corpus(*places: str) -> list[bytes]:
    """The files below ``places`` of the repository, which are recorded or crashed something."""
    files = [p for place in places for p in sorted((ROOT / place).rglob("*")) if p.is_file()]
    found = []
    for path in [*files, *sorted(CRASHES.iterdir())]:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        found.append(data[:40_000])
    return found


def altered(seeds: list[bytes], chance: random.Random, longest: int = LONGEST) -> bytes:
    """Return an input: a recorded one with a few changes, some of them unlikely."""
    data = chance.choice(seeds)
    if chance.random() < 0.5:  # a part, so that most inputs are small
        lines = data.split(b"\n")
        first = chance.randrange(len(lines))
        data = b"\n".join(lines[first : first + chance.randrange(1, 30)])
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        data = _change(data, seeds, chance)[:longest]
    return data


def _change(data: bytes, seeds: list[bytes], chance: random.Random) -> bytes:
    if chance.random() < 0.15:  # a line of another file
        lines, others = data.split(b"\n"), chance.choice(seeds).split(b"\n")
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(others))
        return b"\n".join(lines)
    at = chance.randrange(len(data) + 1)
    to = min(len(data), at + chance.choice((1, 2, 8, 80)))
    if chance.random() < 0.3 and (number := _NUMBER.search(data, at)):
        at, to = number.span()
        return data[:at] + chance.choice(_TOKENS[:11]) + data[to:]
    new, end = chance.choice(
        (
            (chance.choice(_TOKENS), at),
            (chance.choice(_TOKENS), to),
            (b"", to),
            (b"", len(data)),
            (bytes([chance.randrange(256)]), at + 1),
            (data[at:to] * chance.choice((2, 50, 2000)), to),
        )
    )
    return data[:at] + new + data[end:]
