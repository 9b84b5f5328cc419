# SPDX-License-Identifier: MIT
"""The JSON that nccl-tests writes with ``-J``: how a job asks for it, and what is kept of it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from busbar.explain.facts import Facts
from busbar.explain.json_runs import from_json
from busbar.parse import nccl_tests
from busbar.redact import redact_document

FILES = "nccl-tests.*.json"
"""The names that such files have in a job's directory."""


@dataclass(frozen=True)
class Report:
    """What a tool wrote beside its table."""

    facts: Facts | None
    missing: str = ""
    """Why there are no facts."""


def asking(program: str, file: str) -> list[str]:
    """Shell lines that put the option into ``json`` where the usage of ``program`` names it.

    The tool writes its whole environment into the file: nobody else may read it before `take` has
    cleaned it, and a job that is ended before that leaves none.
    """
    return [
        "json=()",
        f"if timeout 30 {shlex.quote(program)} --help 2>&1 </dev/null | grep -q -e '-J,'; then",
        f"    json=(-J {file})",
        f"    trap 'rm -f {FILES}; exit 143' TERM",
        f"    (umask 077; : >{file})",
        "fi",
    ]


def take(path: Path) -> Report:
    """Reads a report and leaves only what may be kept of it; what cannot be read is removed."""
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        text = json.dumps(redact_document(document), indent=1) + "\n"
        run = nccl_tests.parse_json(text)
    except FileNotFoundError:
        return Report(None, "was not written")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        path.unlink()
        return Report(None, "is empty or breaks off")
    if run is None:
        path.unlink()
        return Report(None, "is JSON of another kind")
    path.write_text(text, encoding="utf-8")
    if not run.complete:
        return Report(None, "has no end")
    return Report(from_json(run, path.name, text))
