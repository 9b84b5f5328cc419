# SPDX-License-Identifier: MIT
"""The page of licences, from the locks and `locks/licenses.list`."""

from __future__ import annotations

from pathlib import Path

from busbar.site.stacks import shared
from busbar.site.systems import BASE
from ci.sbom import ROOT, licence, parts

from .markdown import table

LOCKS = {
    "Wheels of Busbar": "requirements.lock",
    "Wheels of development": "locks/dev.txt",
    "Wheels of images": "locks/[uc]*.txt",
    "Packages of Spack": "site/_stacks/**/spack.lock",
}


def locks(pattern: str) -> list[Path]:
    """Return the locks of a pattern, without those that are derived for other systems."""
    found = [(path, shared(path.parent)) for path in sorted(ROOT.glob(pattern))]
    return [path for path, own in found if own is None or own.system == BASE]


def licenses_page() -> list[str]:
    """One row for each package and version, in the first section that has it."""
    lines, seen = list[str](), set()
    for title, pattern in LOCKS.items():
        found = {
            (f"`{each.name}`", each.version, licence(each)[0])
            for path in locks(pattern)
            for each in parts(path)
        }
        rows = sorted(found - seen)
        seen |= found
        lines += [f"## {title}", "", *table(("package", "version", "licence"), rows)]
    return lines
