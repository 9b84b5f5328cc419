# SPDX-License-Identifier: MIT
"""Keep secrets out of stored and printed text: filter variables by name, values by pattern.

Every step takes time in proportion to the text, whatever it contains: a run of characters is
entered only at its beginning (lookbehind) and never given back (possessive quantifiers).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from busbar.secret_forms import REPLACEMENT, without_forms

KEPT_PREFIXES = (
    *("NCCL_", "RCCL_", "MSCCLPP_", "TORCH_NCCL_", "NPKIT_", "UCX_", "UCC_", "FI_", "OMPI_"),
    *("PMIX_", "PRTE_", "MPICH_", "CUDA_", "HIP_", "ROCR_", "HSA_", "SLURM_"),
)
"""Prefixes of the variables that a stored result may contain."""


# A variable of Kubernetes, XML or a table: name and value are two keys, in either order.
_VARIABLE = re.compile(
    r"(?P<before>(?:\bname|\b(?:\w*[a-z_])?[Kk]ey)\"?+\s*+[:=]\s*+\"?+(?P<name>[\w.-]++)\"?+,?+\s*+\"?+"
    r"\w*?[Vv]alue\"?+\s*+[:=]\s*+)(?!\[redacted])(?:\"[^\"\n]*+\"|[^\s,}\"]++)"
    r"|(?P<first>\"value\":\s*+)\"[^\"\n]*+\"(?P<after>,\s*+\"name\":\s*+\"(?P<named>[\w.-]++)\")"
    r"|(?P<front>^[ \t]*+\|[ \t]++(?P<cell>[\w.-]++)[ \t]++\|[ \t]++)[^|\s]++",
    re.MULTILINE,
)
# Names and what follows them: NAME=x, "name": "x", --name x, <name>x</name>, setenv NAME x.
_NAME = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]++)"
    r"(?P<between>\\?[\"']?[^\S\n]*+(?:[:=\uff1a\uff1d]{1,2}>?|%3[AaDd])[^\S\n]*+"
    r"| set by environment to |>"
    r"|(?P<space>\s++(?:\\\n\s*+|(?:is|was|set to|now)\s++)*+))"
)
# After a space, only an identifier or a password is a name, and only letters with digits a value.
_IDENTIFIER = re.compile(r"_|PASSW|PASSPHRASE|SECRET")
_CODED = re.compile(
    r"\"[^\"\n]++\"|'[^'\n]++'|(?=[^\W\d]++[\d@#$%!]|\d++[^\W\d])[^\s/:,()<>=|]{6,}+(?=\s|$)"
)
_BLOCK = re.compile(r"[|>][+-]?+[ \t]*+\n(?P<indent>[ \t]++)[^\n]*+(?:\n(?P=indent)[^\n]*+)*+")
"""Lines below a key of YAML."""
_SETENV = ("set", "setenv", "ENV", "-gx", "-Ux")
_QUOTE = re.compile(r"\\?[\"']")
_QUOTED = {
    '"': re.compile(r"(?:[^\"\\]|\\.)*+\"?", re.DOTALL),
    "'": re.compile(r"(?:[^'\\]|\\.)*+'?", re.DOTALL),
    '\\"': re.compile(r"(?:[^\"\\]|\\[^\"])*+(?:\\?\")?", re.DOTALL),
    "\\'": re.compile(r"(?:[^'\\]|\\[^'])*+(?:\\?')?", re.DOTALL),
}
_AFTER_QUOTE = re.compile(r"[^\s,;)}\]>:\"'&]*+")
_INSIDE = {'"': re.compile(r"[^\n\"]*+"), "'": re.compile(r"[^\n']*+")}
_WORD = re.compile(r"(?:\\.|[^\s\\])*+", re.DOTALL)
_PARAMETER = re.compile(r"[^\s&#\"'<>]*+")
_ELEMENT = re.compile(r"[^<]*+")
_REST_OF_LINE = re.compile(r"[^\n]*+")

# The words of a name: accessKey, X-API-Key, HTTPToken.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_STRONG = re.compile(
    r"TOKEN(?!S|IZ)|SECRET|SSHPASS|PASSW|PASSPHRASE|PASSCODE|CREDENTIAL|COOKIE|JWT|SIGNATURE"
    r"|AUTHORI[ZS]ATION|API_?KEY|PRIV(?:ATE)?_?KEY|PRECONDITION_TRANSPORT"
    r"|(?:ACCESS|ACCOUNT|SHARED|SSH|SIGNING|ENCRYPTION|MASTER|STORAGE|DEPLOY|LICENSE)_?KEY"
    r"|(?:^|_)(?:PWD|PW|PSK|T?OTP|CREDS?)(?:$|_)|_PASS(?:$|_)|(?:^|_)PASS_"
)
_WEAK = re.compile(
    r"(?:^|_)(?:O?AUTH|KEY|PRIVATE)(?:$|_)|^PASS$|(?:DB|USER|ROOT|ADMIN|BIND|STORE|KEY|REQUIRE)P(?:ASS|W)$"
)
_PARAMETERS = re.compile(r"(?:^|_)(?:KEY|SIG|CODE)$")
# These tell about a secret: key_size, password_file.
_ABOUT = re.compile(
    r"_(?:SIZE|LEN|LENGTH|COUNT|BYTES|BITS|TYPE|MODE|METHOD|FILE|PATH|DIR|TIMEOUT|TTL|VERSION"
    r"|ENABLED?|SUPPORT|SUPPORTED)$"
)
# Most text has none of them.
_HINT = re.compile(
    "token|secret|pass|pwd|pw|psk|otp|cred|cookie|jwt|sig|code|auth|key|private|precondition",
    re.IGNORECASE,
)
# A value of several words is the rule for these, so all of the line goes.
_OF_SEVERAL_WORDS = re.compile(r"PASSW|PASSPHRASE|SECRET|COOKIE|AUTHORI[ZS]ATION")
_HARMLESS = re.compile(
    r"[\"']?(?:\d{1,5}|0x[0-9A-Fa-f]{1,16}|true|false|yes|no|on|off|none|null|\(null\)"
    r"|(?:auth/)?munge)?[\"',;)\]}]*",
    re.IGNORECASE,
)

# Words that look random.
_LONG_WORD = re.compile(r"(?<![\w+/-])(?<!\w\.)[A-Za-z0-9_+/-]{24,}+={0,2}(?!\.\w)")
# Tokens have a prefix: dop_v1_, dapi.
_HEXADECIMAL = re.compile(
    r"(?:[A-Za-z0-9]{1,10}[_-]){0,3}[A-Za-z]{0,5}?(?:[0-9a-f]{32,}|[0-9A-F]{32,})"
)
# UUIDs, which GPUs have, and names that compilers mangle.
_NAMED = re.compile(r"(?:[A-Z]{3}-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|_+[ZR].*")
_DATE = re.compile(
    r"(?<!\d)(?:19|20)\d\d-?(?:\d\d|[A-Z][a-z]{2})-?\d\d(?:[T_-]?\d\d(?:-?\d\d){0,2}Z?)?(?!\d)"
)
_MIN_RANDOM = 24
"""Letters and digits of the shortest word that is taken for a random one."""
_RUNS = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]+|[a-z]|[0-9]+")


class _Kind(Enum):
    """What a name says of its value."""

    PLAIN = auto()
    WEAK = auto()
    """A secret, unless the value is a small number: the key of a memory region is one."""
    STRONG = auto()


def redact(text: str) -> str:
    """Replace everything in ``text`` that looks like a secret."""
    text = _VARIABLE.sub(_redact_variable, without_forms(text))
    if _HINT.search(text):
        text = "".join(_without_values(text))
    return _LONG_WORD.sub(lambda m: REPLACEMENT if _is_random(m[0]) else m[0], text)


def _redact_variable(match: re.Match[str]) -> str:
    name = match["name"] or match["named"] or match["cell"]
    if _kind(name[:200])[0] is not _Kind.STRONG:
        return match[0]
    before = match["before"] or match["first"] or match["front"]
    return f"{before}{REPLACEMENT}{match['after'] or ''}"


def _without_values(text: str) -> Iterator[str]:
    """Yield ``text`` in pieces, without the values of names that say that they are secret."""
    done = at = 0
    before = ""
    while found := _NAME.search(text, at):
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
    if kind is _Kind.PLAIN and in_url and _PARAMETERS.search(words):
        kind = _Kind.STRONG
    named = kind is _Kind.STRONG and _IDENTIFIER.search(words) and _CODED.match(text, at)
    spaced = found["space"] and not (option or before in _SETENV or named)
    if kind is _Kind.PLAIN or spaced or (between == ">") != (front == "<"):
        return 0
    # "invalid key: mlx5_0" is a message, and a key without another word is one of a table.
    message = words == "KEY" or (":" in between and not re.search("[\"']", between))
    if kind is _Kind.WEAK and message and not (in_url or option):
        return 0
    if text.startswith(REPLACEMENT, at):
        return 0
    block = _BLOCK.match(text, at)
    end = block.end() if block else _end_of_value(text, found, words, front)
    value = text[at:end]
    if kind is _Kind.WEAK and _HARMLESS.fullmatch(value[:64]):
        return 0
    return 0 if name.upper() == "PWD" and value.startswith("/") else end


def _end_of_value(text: str, found: re.Match[str], words: str, front: str) -> int:
    between, at = found["between"], found.end()
    if between == ">":
        return _end(_ELEMENT, text, at)
    if front in ("?", "&") or "%3" in between:
        return _end(_PARAMETER, text, at)
    if quote := _QUOTE.match(text, at):
        return _end(_AFTER_QUOTE, text, _end(_QUOTED[quote[0]], text, quote.end()))
    if front in _INSIDE and not re.search("[\"']", between):
        return _end(_INSIDE[front], text, at)
    begins = found.start() == 0 or front == "\n"
    if _OF_SEVERAL_WORDS.search(words) and (begins or ": " in between or " =" in between):
        return _end(_REST_OF_LINE, text, at)
    return _end(_WORD, text, at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


@lru_cache(4096)
def _kind(name: str) -> tuple[_Kind, str]:
    """Return what a name says of its value, and its words."""
    words = "_".join(_WORDS.findall(name)).upper()
    if _ABOUT.search(words):
        return _Kind.PLAIN, words
    if _STRONG.search(words) or _STRONG.search(name.upper()):
        return _Kind.STRONG, words
    return (_Kind.WEAK if _WEAK.search(words) else _Kind.PLAIN), words


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
        return not _HARMLESS.fullmatch(value[:64])
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
    """Return whether a long word is one of no language: a key, and not a path or a name."""
    if word.startswith("/"):
        return any(map(_is_random, word.split("/")))
    word = word.rstrip("=")
    if _NAMED.fullmatch(word):
        return False
    if _HEXADECIMAL.fullmatch(word):
        return True  # a hexadecimal key, or a commit id, which a result does not need
    if not all(re.search(kind, word) for kind in ("[a-z]", "[A-Z]", "[0-9]")):
        return False
    word = _DATE.sub("", word)  # paths have them
    if len(word) < _MIN_RANDOM:
        return False
    # Letters of a random word change between the classes twice as often as those of a name.
    letters = sum(map(str.isalnum, word))
    # A word of 40 with a slash inside is the form of an AWS key, and hardly that of a path.
    often = 0.33 if "/" in word and len(word) == 40 else 0.4
    return _entropy(word) > 3.7 and len(_RUNS.findall(word)) > often * letters


def _entropy(word: str) -> float:
    counts = Counter(word)
    return -sum(n / len(word) * math.log2(n / len(word)) for n in counts.values())
