# SPDX-License-Identifier: MIT
"""The JSON that nccl-tests writes with ``-J``: how a job asks for it, and what is kept of it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from busbar.engine.launch import Report
from busbar.parse import numbers
from busbar.redact import redact_document
from busbar.tools.nccl_tests.document import read_document

FILES = "nccl-tests.*.json"
"""The names that such files have in a job's directory, once they are clean."""
PRIVATE = "json.private"
"""Where the tool writes them: it dumps its whole environment, which nobody else may read."""


def json_option_script(program: Sequence[str], file: str) -> list[str]:
    """Shell lines that put the option into ``json`` where the usage of ``program`` names it.

    Before a program in an image stand the words that enter it.

    A job that is ended before `collect_json` has cleaned the file leaves none.
    """
    return [
        "json=()",
        f"if timeout 30 {shlex.join(program)} --help 2>&1 </dev/null | grep -q -e '-J,'; then",
        f"    json=(-J {PRIVATE}/{file})",
        f"    trap 'rm -rf {PRIVATE}; exit 143' TERM",
        f"    mkdir -p -m 700 {PRIVATE}",
        "fi",
    ]


def collect_json(path: Path) -> Report:
    """Reads what a job wrote for ``path`` and leaves there only what may be kept of it."""
    private = path.parent / PRIVATE
    try:
        # The tool may have added a number to the name that it was given.
        return _clean(next(iter(sorted(private.glob(f"{path.name}*"))), None), path)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def _clean(written: Path | None, path: Path) -> Report:
    if written is None:
        return Report(None, "was not written")
    try:
        document = numbers.load_json(written.read_text(encoding="utf-8", errors="replace"))
        text = json.dumps(redact_document(document), indent=1) + "\n"
        facts = read_document(path.name, text)
    except (ValueError, RecursionError):
        return Report(None, "is empty or breaks off")
    if facts is None:
        return Report(None, "is JSON of another kind")
    path.write_text(text, encoding="utf-8")
    if facts.finished is None:
        return Report(None, "has no end")
    return Report(facts)
