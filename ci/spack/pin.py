# SPDX-License-Identifier: MIT
"""Pins gpu_aware's sources in its recipe and in every lock, without a new solve.

Runs in Spack's Python (`make spack-pin`). Nothing depends on gpu-aware-mpi, so a changed source
changes one node of a lock: its package hash, and with it its own hash. `make spack-verify` solves
again and finds the same.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import spack.environment
import spack.hash_types
import spack.repo

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "packages/spack_repo/busbar/packages/gpu_aware_mpi/package.py"
SOURCE = ROOT / "reframe_checks/src"
NAME = "gpu-aware-mpi"


def sources(name="gpu_aware.cpp"):
    """The program and, through them, the headers that it includes from beside it."""
    text = (SOURCE / name).read_text()
    headers = re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
    return {name}.union(*(sources(header) for header in headers))


def pin_sources():
    """Writes the sha256 of each source file into the recipe."""
    sums = {
        name: hashlib.sha256((SOURCE / name).read_bytes()).hexdigest()
        for name in sorted(sources())
    }
    lines = "".join(f'        "{name}": "{found}",\n' for name, found in sums.items())
    text = RECIPE.read_text()
    new, count = re.subn(r"(    sources = \{\n)[^}]*(    \})", rf"\g<1>{lines}\g<2>", text)
    if count != 1:
        sys.exit(f"pin: {RECIPE} has no `sources = {{...}}`")
    if new != text:
        RECIPE.write_text(new)


def pin_lock(path):
    """Brings the node of gpu-aware-mpi in one lock up to date; returns whether it changed."""
    data = json.loads(path.read_text())
    nodes = data["concrete_specs"]
    found = [key for key, node in nodes.items() if node["name"] == NAME]
    if len(found) != 1:
        sys.exit(f"pin: {path} has {len(found)} nodes called {NAME}")
    (old,) = found
    spec = spack.environment.Environment(path.parent).specs_by_hash[old].copy()
    spec._mark_root_concrete(False)
    spec.clear_caches()
    spec._cached_hash(spack.hash_types.package_hash, force=True)
    spec._mark_root_concrete()
    new = spec.dag_hash()
    if new == old:
        return False
    node = {**spec.to_node_dict(hash=spack.hash_types.dag_hash), "hash": new}
    data["concrete_specs"] = {
        (new if key == old else key): (node if key == old else value)
        for key, value in nodes.items()
    }
    for root in data["roots"]:
        root["hash"] = new if root["hash"] == old else root["hash"]
    path.write_text(json.dumps(data, separators=(",", ":")))
    return True


def main():
    # The recipe is read after it was written: Spack caches a package class when it is first used.
    pin_sources()
    for path in sorted((*ROOT.glob("site/**/spack.lock"), *ROOT.glob("ci/**/spack.lock"))):
        print(f"{path.parent.relative_to(ROOT)}: {'pinned' if pin_lock(path) else 'up to date'}")


main()
