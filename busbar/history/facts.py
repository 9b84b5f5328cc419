# SPDX-License-Identifier: MIT
"""Facts of provenance as flat text: nested documents get names with dots, secrets go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from busbar.redact import kept_environment, redact_document

_ENVIRONMENTS = ("env", "environment")
_DIGEST = re.compile(r"(?:[a-z0-9]{2,8}[:-])?(?P<hex>[0-9a-f]{32,128})")
_DIGEST_NAMES = re.compile(r"(?:^|[._])(?:commit|hash|digest|image|lock)$")
_DIGEST_SHOWN = 12
_MOST_FACTS = 2000
_LONGEST = 500


def flat(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of a document: ``lock.libfabric`` and its version; null has no fact.

    Digests are shortened. Raises ``ValueError`` if there are too many facts.
    """
    try:
        facts = dict(_flat(_short(document), ""))
    except RecursionError:
        raise ValueError("provenance is nested too deep") from None
    if len(facts) > _MOST_FACTS:
        raise ValueError(f"provenance has {len(facts)} facts, at most {_MOST_FACTS} are kept")
    return facts


def _short(document: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten digests, which look like keys, and remove secrets."""
    plain: dict[str, Any] = {}
    digests = {}
    for name, value in document.items():
        digest = _DIGEST.fullmatch(value) if isinstance(value, str) else None
        if digest and _DIGEST_NAMES.search(name):
            digests[name] = digest["hex"][:_DIGEST_SHOWN]
        elif name in _ENVIRONMENTS and isinstance(value, Mapping):
            plain["env"] = kept_environment({str(k): str(v) for k, v in value.items()})
        elif isinstance(value, Mapping):
            plain[name] = _short(value)
        else:
            plain[name] = value
    return {**redact_document(plain), **digests}


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        yield name, ",".join(map(str, value))[:_LONGEST]
    elif value is not None:
        yield name, str(value)[:_LONGEST]
