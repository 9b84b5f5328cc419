# SPDX-License-Identifier: MIT
"""Keep secrets out of stored and printed text: filter variables by name, values by pattern.

The patterns are in ``redact.toml``. Uses only the standard library, because the gate needs it.
Every step takes linear time for any text: matches start only at the beginning of a run of
characters (lookbehind) and do not backtrack (possessive quantifiers).
"""

from __future__ import annotations

import math
import operator
import pkgutil
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from functools import cache, lru_cache, reduce
from typing import Any

REPLACEMENT = "[redacted]"
KEPT_PREFIXES = (
    *("NCCL_", "RCCL_", "MSCCLPP_", "TORCH_NCCL_", "NPKIT_", "UCX_", "UCC_", "FI_", "OMPI_"),
    *("PMIX_", "PRTE_", "MPICH_", "CUDA_", "HIP_", "ROCR_", "HSA_", "SLURM_", "LD_PRELOAD"),
    "LD_AUDIT",
)
"""Prefixes of the variables that a stored result may contain."""
_WEB = ("http", "https", "ftp", "ftps", "git+https", "oci", "docker")
_SETENV = ("set", "setenv", "ENV", "-gx", "-Ux")
_MIN_RANDOM = 24
"""Letters and digits in the shortest word that is considered random."""


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((pkgutil.get_data("busbar", "redact.toml") or b"").decode())


def _compiled(words: str, **parts: str) -> re.Pattern[str]:
    """Compile an expression; names in braces refer to its parts."""
    for name, part in {**_tables()["parts"], **parts}.items():
        words = words.replace(f"{{{name}}}", part)
    return re.compile(words)


@cache
def _re(*path: str) -> re.Pattern[str]:
    """Return an expression of ``redact.toml``, compiled on first use."""
    found = reduce(operator.getitem, path, _tables())
    return _compiled(found if isinstance(found, str) else "|".join(found))


@cache
def _introduced() -> list[re.Pattern[str]]:
    return [*map(_compiled, _tables()["introduced"])]


@cache
def _option(kind: str) -> re.Pattern[str]:
    """Return an expression that finds the password in a program's options."""
    options = _tables()["options"]
    return _compiled(options.get(kind, options["letter"]), letter=kind)


class _Kind(Enum):
    """What a name implies about its value."""

    PLAIN = auto()
    WEAK = auto()
    """A secret, unless the value is a small number, such as a memory region key."""
    STRONG = auto()


def redact(text: str) -> str:
    """Replace everything in ``text`` that looks like a secret."""
    text = _re("variable").sub(_redact_variable, _without_forms(text))
    if _re("hint").search(text):
        text = "".join(_without_values(text))
    return _re("long-word").sub(lambda m: REPLACEMENT if _is_random(m[0]) else m[0], text)


def _redact_variable(match: re.Match[str]) -> str:
    name = match["name"] or match["named"] or match["cell"] or match["word"]
    if _kind(name[:200])[0] is not _Kind.STRONG:
        return match[0]
    before = match["before"] or match["first"] or match["front"] or match["option"]
    return f"{before}{REPLACEMENT}{match['after'] or ''}"


def _without_values(text: str) -> Iterator[str]:
    """Yield ``text`` in pieces, without the values of names that imply a secret."""
    done = at = 0
    before = ""
    while found := _re("name").search(text, at):
        at = found.end()
        end = _end_of_secret(text, found, before)
        before = found["name"] if found["space"] else ""
        if end > at:
            yield text[done:at]
            yield REPLACEMENT
            done = at = end
    yield text[done:]


def _end_of_secret(text: str, found: re.Match[str], before: str) -> int:
    """Return where the value of a name ends; 0 if it is not a secret."""
    name, between, at = found["name"], found["between"], found.end()
    front = text[found.start() - 1 : found.start()]
    kind, words = _kind(name[:200])
    in_url = front in ("?", "&") and bool(front)
    option = name.startswith("-")
    if kind is _Kind.PLAIN and in_url and _re("parameters").search(words):
        kind = _Kind.STRONG
    named = (
        kind is _Kind.STRONG and _re("identifier").search(words) and _re("coded").match(text, at)
    )
    spaced = found["space"] and not (option or before in _SETENV or named)
    if kind is _Kind.PLAIN or spaced or (between == ">") != (front == "<"):
        return 0
    # "invalid key: mlx5_0" is a message; "key" without another word is a table column.
    message = words == "KEY" or (":" in between and not re.search("[\"']", between))
    if kind is _Kind.WEAK and message and not (in_url or option):
        return 0
    if text.startswith(REPLACEMENT, at):
        return 0
    block = _re("block").match(text, at)
    end = block.end() if block else _end_of_value(text, found, words, front)
    value = text[at:end]
    if kind is _Kind.WEAK and _re("harmless").fullmatch(value[:64]):
        return 0
    return 0 if name.upper() == "PWD" and value.startswith("/") else end


def _end_of_value(text: str, found: re.Match[str], words: str, front: str) -> int:
    between, at = found["between"], found.end()
    if between == ">":
        return _end(_re("element"), text, at)
    if front in ("?", "&") or "%3" in between:
        return _end(_re("parameter"), text, at)
    if quote := _re("quote").match(text, at):
        return _end(_re("after-quote"), text, _end(_re("quoted", quote[0]), text, quote.end()))
    if front in ("'", '"') and not re.search("[\"']", between):
        return _end(_re("inside", front), text, at)
    begins = found.start() == 0 or front == "\n"
    rest = _re("of-several-words").search(words) and (begins or ": " in between or " =" in between)
    return _end(_re("rest-of-line" if rest else "word"), text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


@lru_cache(4096)
def _kind(name: str) -> tuple[_Kind, str]:
    """Return what a name implies about its value, and its words."""
    words = "_".join(_re("words").findall(name)).upper()
    if _re("about").search(words):
        return _Kind.PLAIN, words
    if _re("strong").search(words) or _re("strong").search(name.upper()):
        return _Kind.STRONG, words
    return (_Kind.WEAK if _re("weak").search(words) else _Kind.PLAIN), words


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the communication stack, without secrets."""
    return {
        name: redact(value)
        for name, value in environment.items()
        if name.startswith(KEPT_PREFIXES) and not _is_secret(name, value)
    }


def _is_secret(name: str, value: str) -> bool:
    kind, words = _kind(name[:200])
    if kind is _Kind.WEAK and words != "KEY":
        return not _re("harmless").fullmatch(value[:64])
    return kind is _Kind.STRONG or redact(value) == REPLACEMENT


def redact_document(document: Any) -> Any:
    """Redact each string of a JSON document, and filter its environments.

    nccl-tests writes its whole environment as a list of ``NAME=value`` under the key ``env``.
    """
    if isinstance(document, Mapping):
        named, value = document.get("name"), document.get("value")
        if isinstance(named, str) and isinstance(value, str) and _is_secret(named, value):
            document = {**document, "value": REPLACEMENT}
        return {
            redact(str(key)): _redact_env(value)
            if str(key) in ("env", "environment")
            else REPLACEMENT
            if isinstance(value, str | int | float) and _is_secret(str(key), str(value))
            else redact_document(value)
            for key, value in document.items()
        }
    if isinstance(document, list | tuple):
        return [redact_document(item) for item in document]
    return redact(document) if isinstance(document, str) else document


def _redact_env(value: Any) -> Any:
    if isinstance(value, Mapping):
        return kept_environment({str(k): str(v) for k, v in value.items()})
    if isinstance(value, list | tuple):
        pairs = dict(str(item).partition("=")[::2] for item in value)
        return [f"{name}={text}" for name, text in kept_environment(pairs).items()]
    return redact_document(value)


def _is_random(word: str) -> bool:
    """Return whether a long word is random: a key, not a path or a name."""
    if word.startswith("/"):
        return any(map(_is_random, word.split("/")))
    word = word.rstrip("=")
    if _re("named").fullmatch(word):
        return False
    if _re("hexadecimal").fullmatch(word):
        return True  # a hexadecimal key, or a commit ID, which results do not need
    one_case = word.isalnum() and word in (word.lower(), word.upper())
    if not one_case and not all(re.search(kind, word) for kind in ("[a-z]", "[A-Z]", "[0-9]")):
        return False
    word = _re("date").sub("", word)  # paths contain these
    if len(word) < _MIN_RANDOM:
        return False
    # In random words, letters change class twice as often as in names.
    letters = sum(map(str.isalnum, word))
    # A word of 40 characters with a slash inside looks like an AWS key, not like a path.
    often = 0.28 if one_case else 0.33 if "/" in word and len(word) == 40 else 0.4
    return _entropy(word) > 3.7 and len(_re("runs").findall(word)) > often * letters


def _entropy(word: str) -> float:
    return -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())


# ---- secrets identified by the text around them: formats, URL users, program passwords
def _without_forms(text: str) -> str:
    """Replace secrets identified by their form, or by the command or words before them."""
    text = _re("url").sub(_redact_url, _re("known").sub(REPLACEMENT, text))
    for introduced in _introduced():
        text = introduced.sub(rf"\g<before>{REPLACEMENT}", text)
    if _re("login").search(text):
        text = "\n".join(map(_redact_login, text.split("\n")))
    return text


def _redact_url(match: re.Match[str]) -> str:
    """Redact user and password. A password can contain ``/`` and ``@``, unescaped."""
    scheme, rest = match["scheme"], match["rest"]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, colon, after = authority.partition(":")
    password = "@" in authority or not _re("port").match(after)
    if colon and "@" not in user and password:
        at = rest.rfind("@")
    elif scheme.lower() in _WEB and user != "git":
        at = authority.rfind("@")
    else:
        at = -1
    rest = _re("conda").sub(REPLACEMENT, rest if at < 0 else f"{REPLACEMENT}{rest[at:]}")
    return f"{scheme}://{rest}"


def _redact_login(line: str) -> str:
    begins: dict[str, int] = {}
    for login in _re("login").finditer(line):
        begins.setdefault(login.lastgroup or "p", login.end())
    for kind, at in reversed(begins.items()):
        words = _option(kind).sub(
            rf"\g<option>{REPLACEMENT}", line[at:], count=int(kind == "last")
        )
        line = line[:at] + words
    return line
