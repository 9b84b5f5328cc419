# SPDX-License-Identifier: MIT
"""Score a directory of labelled logs: ``python -m tests.explain.public_logs DIRECTORY``.

Its ``labels.tsv`` has a row per file with the column ``expect``: ids of causes of which one has to
be named, ``healthy`` (no cause, ``pass`` or ``unjudged``), or ``unjudged`` (not ``pass``); ``-``
among the ids means that naming none is right, too. ``site`` in another column names a site.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path

from busbar.errors import BusbarError
from busbar.explain import Explanation, Source, explain

from .outputs import load

_SITE = re.compile(r"--site (?P<name>\S+)")


def is_right(expect: str, file: Path | Source, site: str | None = None) -> tuple[bool, list[str]]:
    """Return whether the explanation of a log agrees with its label, and the causes named."""
    return agrees(expect, explained(file, site))


def explained(file: Path | Source, site: str | None = None) -> list[Explanation] | None:
    """Return the explanation of a log; None if it is refused."""
    try:
        return explain([file], site=load(site) if site else None)
    except BusbarError:
        return None


def agrees(expect: str, found: list[Explanation] | None) -> tuple[bool, list[str]]:
    """Return whether an explanation agrees with a label, and the causes that it names."""
    if found is None:
        return expect == "unjudged" or "-" in expect.split("|"), ["bad input"]
    causes = [cause.id for run in found for cause in run.causes]
    verdicts = {str(run.verdict) for run in found}
    if expect == "healthy":
        return not causes and verdicts <= {"pass", "unjudged"}, causes
    if expect == "unjudged":
        return "pass" not in verdicts, causes
    accepted = set(expect.split("|"))
    return bool(accepted & set(causes)) or ("-" in accepted and not causes), causes


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    right: list[bool] = []
    with (directory / "labels.tsv").open(newline="") as table:
        for row in csv.DictReader(table, delimiter="\t"):
            site = _SITE.search(" ".join(value or "" for value in row.values()))
            good, causes = is_right(
                row["expect"], directory / row["file"], site["name"] if site else None
            )
            right.append(good)
            if not good:
                sys.stdout.write(f"{row['file']}: {row['expect']} expected, {causes} named\n")
    sys.stdout.write(f"{sum(right)} of {len(right)}\n")
    return int(not all(right))


if __name__ == "__main__":
    raise SystemExit(_main())
