# SPDX-License-Identifier: MIT
"""Write gpu_aware as one file beside its Spack recipe, and its checksum into the recipe.

A repository of recipes must build without the rest of this repository: Spack knows it by a path
or a mirror. `make spack-pin` runs this, then updates the locks.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "reframe_checks/src/gpu_aware.cpp"
SOURCE = ROOT / PROGRAM
RECIPE = ROOT / "packages/spack_repo/busbar/packages/gpu_aware_mpi/package.py"
HEAD = """// SPDX-License-Identifier: MIT
// Written by `make spack-pin` from reframe_checks/src; change the files there.
"""
_INCLUDE = re.compile(r'#include "(?P<name>[^"]+)"')
_CHECKSUM = re.compile(r'(?<=sha256=")[0-9a-f]{64}(?=")')


def one_file(path: Path) -> str:
    """Return a program with its own headers in it, each once; messages name the right lines."""
    return HEAD + "\n".join(_lines(path, set())) + "\n"


def _lines(path: Path, seen: set[str]) -> list[str]:
    seen.add(path.name)
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line == "#pragma once":
            lines.append("")
        elif not (include := _INCLUDE.match(line)):
            lines.append(line)
        elif include["name"] in seen:
            lines.append("")
        else:
            lines += _lines(path.with_name(include["name"]), seen)
            lines.append(f'#line {number + 1} "{path.name}"')
    return lines


def pinned(recipe: str, source: str) -> str:
    """Return a recipe with the checksum of its source."""
    new, count = _CHECKSUM.subn(hashlib.sha256(source.encode()).hexdigest(), recipe)
    if count != 1:
        sys.exit(f'spack: {RECIPE} has {count} checksums (sha256="..."), and must have one')
    return new


def main() -> None:
    source = one_file(SOURCE)
    RECIPE.with_name(SOURCE.name).write_text(source)
    RECIPE.write_text(pinned(RECIPE.read_text(), source))


if __name__ == "__main__":
    main()
