# SPDX-License-Identifier: MIT
"""Keep secrets out of stored and printed text: filter variables by name, values by pattern."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

KEPT_PREFIXES = (
    "NCCL_",
    "RCCL_",
    "MSCCLPP_",
    "TORCH_NCCL_",
    "NPKIT_",
    "UCX_",
    "UCC_",
    "FI_",
    "OMPI_",
    "PMIX_",
    "PRTE_",
    "MPICH_",
    "CUDA_",
    "HIP_",
    "ROCR_",
    "HSA_",
    "SLURM_",
)
"""Prefixes of the variables that a stored result may contain."""
REPLACEMENT = "[redacted]"

# A variable whose name contains one of these is a secret, whatever its prefix.
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE|AUTH|COOKIE|JWT|(?:^|_)KEY(?:$|_)"
    r"|(?:^|_)(?:PWD|PW|PASS)$|NAMESPACE_?KEY",
    re.IGNORECASE,
)
_KNOWN_SECRETS = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS access keys
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[\w-]{10,}"
    r"|npm_[A-Za-z0-9]{30,}|nvapi-[\w-]{20,}|wandb_v\d_\w{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # JSON web tokens
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
# user:password options of curl and wget.
_USER = re.compile(r"(?P<option>(?:^|\s)(?:-u|--user)(?:\s+|=))[\"']?[^\s:\"']+:[^\s\"']+")
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
_BEARER = re.compile(r"\b(?P<scheme>Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
# A quoted value ends at its closing quote; a quote before a colon is JSON's.
_ASSIGNMENT = re.compile(
    r"\b(?P<name>[A-Za-z_][\w-]*)(?P<between>[\"']?\s*[=:]\s*|\s+set by environment to )"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\s'\"]+)"
)
_OPTION = re.compile(
    r"(?P<option>--?(?:[\w-]*(?:token|password|passwd|secret|api-?key|credential)[\w-]*)(?:\s+|=))"
    r"(?:\"[^\"]*\"?|'[^']*'?|\S+)",
    re.IGNORECASE,
)
_LONG_WORD = re.compile(r"(?<![\w/.+-])[A-Za-z0-9_+-]{24,}={0,2}(?![\w/.])")


def redact(text: str) -> str:
    """Replace everything in ``text`` that looks like a secret."""
    text = _KNOWN_SECRETS.sub(REPLACEMENT, text)
    text = _URL_PASSWORD.sub(REPLACEMENT, text)
    text = _BEARER.sub(rf"\g<scheme> {REPLACEMENT}", text)
    text = _USER.sub(rf"\g<option>{REPLACEMENT}", text)
    text = _OPTION.sub(rf"\g<option>{REPLACEMENT}", text)
    text = _ASSIGNMENT.sub(_redact_assignment, text)
    return _LONG_WORD.sub(lambda m: REPLACEMENT if looks_like_token(m[0]) else m[0], text)


def _redact_assignment(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    if _SECRET_NAME.search(name) or looks_like_token(value):
        return f"{name}{between}{REPLACEMENT}"
    # A value can be a list of further assignments.
    parts = [_redact_part(part) for part in re.split(r"(?P<comma>[,;])", value)]
    return f"{name}{between}{''.join(parts)}"


def _redact_part(part: str) -> str:
    names, equals, value = part.rpartition("=")
    if (equals and _SECRET_NAME.search(names)) or looks_like_token(value):
        return f"{names}{equals}{REPLACEMENT}"
    return part


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the communication stack, without secrets."""
    return {
        name: redact(value)
        for name, value in environment.items()
        if name.startswith(KEPT_PREFIXES)
        and not _SECRET_NAME.search(name)
        and not looks_like_token(value)
    }


def redact_document(document: Any) -> Any:
    """Redact each string of a JSON document, and filter its environments.

    nccl-tests writes its whole environment as a list of ``NAME=value`` under the key ``env``.
    """
    if isinstance(document, Mapping):
        return {
            str(key): _redact_env(value)
            if str(key) in ("env", "environment")
            else REPLACEMENT
            if isinstance(value, str) and value and _SECRET_NAME.search(str(key))
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


def looks_like_token(value: str) -> bool:
    """Return whether a value looks like a key: a known format, or a long random word."""
    if _KNOWN_SECRETS.search(value):
        return True
    word = value.strip("\"'")
    if not re.fullmatch(r"[A-Za-z0-9_+/=-]{24,}", word) or "/" in word[:1]:
        return False
    if re.fullmatch(r"[0-9a-f]{32,}|[0-9A-F]{32,}", word):
        return True  # a hexadecimal key, or a commit id, which a result does not need
    kinds = sum(bool(re.search(kind, word)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return kinds == 3 and _entropy(word) > 3.7


def _entropy(word: str) -> float:
    counts = Counter(word)
    return -sum(n / len(word) * math.log2(n / len(word)) for n in counts.values())
