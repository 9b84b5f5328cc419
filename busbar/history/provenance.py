# SPDX-License-Identifier: MIT
"""Facts of provenance as flat text: nested documents get names with dots, secrets go.

Nodes state theirs themselves: `provenance.sh` writes a record before they measure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from busbar.boundary import read_text
from busbar.redact import kept_environment, redact, redact_document

RECORDS = "provenance-record.*"
_VOLATILE = ("OMPI_MCA_orte_", "OMPI_MCA_ess_", "PRTE_MCA_prte_tmpdir", "PRTE_MCA_ess_")
"""Variables that differ in each run by themselves."""
_LONGEST_OF_NODES = 300
_ENV = "env."
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


def node_facts(directory: Path) -> dict[str, str]:
    """Return the facts of the nodes that left records in a stage directory.

    Values of several devices or nodes are listed once each. Records that cannot be read are left
    out: a run is worth more than its provenance.
    """
    found: dict[str, set[str]] = {}
    nodes = []
    for path in sorted(directory.glob(RECORDS)):
        try:
            text = read_text(path, errors="replace")
        except OSError:
            continue
        nodes.append(path.name.partition(".")[2])
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and value.strip() and not name.startswith(_ENV):
                found.setdefault(name, set()).add(redact(value.strip()))
        for name, value in _environment(text.splitlines()).items():
            found.setdefault(name, set()).add(value)
    facts = {name: ", ".join(sorted(found[name]))[:_LONGEST_OF_NODES] for name in sorted(found)}
    return {**facts, "nodes": ",".join(nodes)} if nodes else facts


def _environment(lines: Sequence[str]) -> Mapping[str, str]:
    """Return the variables that tune the stack, without secrets."""
    variables = dict(
        line.removeprefix(_ENV).partition("=")[::2] for line in lines if line.startswith(_ENV)
    )
    kept = kept_environment(variables)
    return {
        f"{_ENV}{name}": value for name, value in kept.items() if not name.startswith(_VOLATILE)
    }
