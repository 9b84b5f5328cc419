# SPDX-License-Identifier: MIT
"""What the nodes of a job say of themselves: `provenance.sh` writes it before they measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from busbar.redact import kept_environment, redact
from busbar.text_file import read_text

RECORDS = "provenance-record.*"
_VOLATILE = ("OMPI_MCA_orte_", "OMPI_MCA_ess_", "PRTE_MCA_prte_tmpdir", "PRTE_MCA_ess_")
"""Variables that differ in each run by themselves."""
_LONGEST = 300
_ENV = "env."


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
    facts = {name: ", ".join(sorted(values))[:_LONGEST] for name, values in sorted(found.items())}
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
