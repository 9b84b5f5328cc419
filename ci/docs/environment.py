# SPDX-License-Identifier: MIT
"""The page of the environment variables."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from busbar.parse.tables import load_yaml

from .markdown import plain, table

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ROOT / "busbar/variables.yaml"
PRODUCT = ("busbar", "reframe_checks")
READ = re.compile(
    r"""os\.environ(?:\[|\.(?:get|setdefault)\()\s*"(\w+)"|"(\w+)" (?:not )?in os\.environ\b"""
)


def environment_page() -> list[str]:
    """Every variable that the code reads, with its entry in variables.yaml."""
    meanings = load_yaml(VARIABLES)
    code = _code(*PRODUCT, "containers", "ci", "site", ".ci", "tests", "Makefile")
    read = {name for names in READ.findall(_code(*PRODUCT)) for name in names if name}
    read |= set(re.findall(r"\bBUSBAR_[A-Z_]*[A-Z]\b", code))
    if unknown := read - {name for group in meanings.values() for name in group}:
        sys.exit(f"describe in busbar/variables.yaml: {', '.join(sorted(unknown))}")
    words = set(re.findall(r"\w+", code))
    lines: list[str] = []
    for title, group in meanings.items():
        if unused := group.keys() - words:
            sys.exit(f"busbar/variables.yaml: nothing reads {', '.join(sorted(unused))}")
        lines += [f"## {title}", ""]
        rows = ((f"`{name}`", plain(text)) for name, text in group.items())
        lines += table(("variable", "meaning"), rows)
    return lines


def _code(*parts: str) -> str:
    # The programs in src/ read what launchers set for each rank.
    foreign = ("tests/data", "tests/docs", "ci/docs", "reframe_checks/src")
    files = (path for part in parts for path in (ROOT / part, *(ROOT / part).rglob("*")))
    return "\n".join(
        path.read_text(encoding="utf-8", errors="ignore")
        for path in files
        if path.is_file() and path.suffix != ".pyc"
        if not path.relative_to(ROOT).as_posix().startswith(foreign)
    )
