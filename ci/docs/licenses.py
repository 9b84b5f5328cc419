# SPDX-License-Identifier: MIT
"""The page of licences, from the locks and `locks/licenses.list`."""

from __future__ import annotations

from pathlib import Path

from busbar.site.manifests import shared
from busbar.site.systems import BASE
from ci.sbom import ROOT, licence, parts

from .markdown import table

INTRO = """\
# Licences

Busbar has the [MIT licence](../../LICENSE); its wheel contains nothing of others. pip and Spack
install the packages below, and images contain some of them. The locks name them; those of
`locks/dev.txt` that `requirements.lock` lacks are for development only. The licence is what the
metadata of the wheel or the recipe of Spack states: `make licenses` asks both. `unknown` means
that neither states it, or that the lock has the version for another system or Python. `make sbom`
writes the packages of one site or image.

An image has the texts of its wheels, or the list of its packages of Spack, in
`/opt/busbar/licenses`, and those of Debian's packages in `/usr/share/doc/*/copyright`.
"""
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


def licenses_page() -> str:
    """One row for each package and version, in the first section that has it."""
    lines, seen = [INTRO], set()
    for title, pattern in LOCKS.items():
        found = {
            (f"`{each.name}`", each.version, licence(each)[0])
            for path in locks(pattern)
            for each in parts(path)
        }
        rows = sorted(found - seen)
        seen |= found
        lines += [f"## {title}", "", *table(("package", "version", "licence"), rows)]
    return "\n".join(lines)
