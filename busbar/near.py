# SPDX-License-Identifier: MIT
"""The known words that are probably meant by another word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from math import ceil
from pathlib import Path

_MOST, _LONGEST = 3, 100
"""Words that can be meant, as more are a guess, and characters of a word, as texts are hostile."""
_PART, _LEAST_SHARE = 3, 0.6
"""Letters that make a part of a word, and the share of its letters that suffices."""


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words that are probably meant, at most three; none if that is a guess.

    They differ in case or hyphens, have the word as a part (gb200 is gb200-nvl72, not dgx-b200),
    are misspelled, mean the same, begin with the word, or have most of its parts.
    """
    words, meant = list(known), _plain(word[:_LONGEST])
    plain = {_plain(each): each for each in reversed(words)}
    if meant in plain:
        return [plain[meant]]
    close = misspelled(meant, plain)
    begun = [each for each in plain if each.startswith(meant)]
    ways = (
        [plain[each] for each in get_close_matches(meant, plain, n=1, cutoff=0.85)],
        [each for each in words if len(meant) >= _PART and meant in _parts(each)],
        [plain[close]] if close else [],
        [each for each in words if meant in synonyms().get(each, ())],
        [plain[each] for each in get_close_matches(meant, _like(meant, plain), n=1, cutoff=0.66)],
        [plain[each] for each in sorted(begun, key=len)],
        _of_most_parts(_parts(word[:_LONGEST]), words),
    )
    return next((found for found in ways if 1 <= len(found) <= _MOST), [])


def question(words: Iterable[str]) -> str:
    """Return ``did you mean 'x' or 'y'?``; empty without words."""
    quoted = " or ".join(map(repr, dict.fromkeys(words)))
    return f"did you mean {quoted}?" if quoted else ""


def misspelled(word: str, known: Iterable[str]) -> str:
    """Return the known word with about four fifths of the letters; empty if there is none."""
    words = list(known)
    swapped = [each for each in words if sorted(each) == sorted(word)]
    return next(iter(swapped or get_close_matches(word, words, n=1, cutoff=0.8)), "")


@cache
def synonyms() -> dict[str, list[str]]:
    """Return what users type for words and options; empty in the compiled gate, without YAML."""
    found: dict[str, list[str]] = {}
    with suppress(ImportError, OSError):
        from yaml import safe_load  # noqa: PLC0415 - only for a mistake

        groups = safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
        for kind, group in groups.items():
            for word, typed in group.items():
                key = f"--{word}" if kind == "options" else word
                found.setdefault(key, []).extend(map(_plain, typed))
    return found


def _like(word: str, known: Iterable[str]) -> list[str]:
    """Return words of the same length, first letter and digits: h100 is not a misspelled h200."""
    digits = re.findall("[0-9]", word)
    same = [each for each in known if each[:1] == word[:1] and abs(len(each) - len(word)) <= 1]
    return [each for each in same if re.findall("[0-9]", each) == digits]


def _of_most_parts(parts: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the words with most parts of another: nccl-socket-fallback for nccl-sockets."""
    in_all = set.intersection(*({*_parts(each)} for each in words)) if words[1:] else set()
    own = [part for part in parts if part not in in_all]  # ucx tells no lane from others
    shares = {
        each: sum(len(p) for p in own if any(_same_part(p, k, each) for k in _parts(each)))
        for each in words
    }
    most = max(shares.values(), default=0)
    if most < _LEAST_SHARE * sum(map(len, own)) or not most:
        return []
    found = [each for each in words if shares[each] == most]
    fewest = min(len(_parts(each)) for each in found)
    return found if len(found) <= _MOST else [e for e in found if len(_parts(e)) == fewest]


def _same_part(part: str, known: str, word: str) -> bool:
    """Return whether a part begins as one of ``word`` does, or means the same."""
    least = max(_PART, ceil(0.75 * min(len(part), len(known))))
    is_begun = len(part) >= least and part[:least] == known[:least]
    key = f"--{known}" if word.startswith("-") else known
    return part == known or is_begun or part in synonyms().get(key, ())


def _parts(word: str) -> list[str]:
    return re.findall(r"[a-z]+[0-9]*|[0-9]+", word.casefold())


def _plain(word: str) -> str:
    """Return a name without the details that people forget: case, hyphens and underscores."""
    return re.sub(r"^-+|(?<=\w)[-_. ]", "", word.casefold())
