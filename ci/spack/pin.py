# SPDX-License-Identifier: MIT
"""Pin the sources of gpu_aware in its recipe and in every lock, without a new solve.

Runs in Spack's Python (`make spack-pin`). No package depends on gpu-aware-mpi, so a changed
source changes only one node of a lock: its package hash, and thus its own hash. `make
spack-verify` solves again and must find the same.
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
    """Return the program and the headers in its directory that it includes, also indirectly."""
    text = (SOURCE / name).read_text()
    headers = re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
    return {name}.union(*(sources(header) for header in headers))


def pin_sources():
    """Write the sha256 of each source file into the recipe."""
    sums = {
        name: hashlib.sha256((SOURCE / name).read_bytes()).hexdigest()
        for name in sorted(sources())
    }
    lines = "".join(f'        "{name}": "{digest}",\n' for name, digest in sums.items())
    text = RECIPE.read_text()
    new, count = re.subn(r"(    sources = \{\n)[^}]*(    \})", rf"\g<1>{lines}\g<2>", text)
    if count != 1:
        sys.exit(f"pin: {RECIPE} has no `sources = {{...}}`")
    if new != text:
        RECIPE.write_text(new)


def pin_lock(path):
    """Update the node of gpu-aware-mpi in one lock; return whether it changed."""
    data = json.loads(path.read_text())
    nodes = data["concrete_specs"]
    keys = [key for key, node in nodes.items() if node["name"] == NAME]
    if len(keys) != 1:
        sys.exit(f"pin: {path} has {len(keys)} nodes named {NAME}, instead of one")
    (old,) = keys
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
    # Write the recipe before its first use, as Spack then caches the package class.
    pin_sources()
    for path in sorted((*ROOT.glob("site/**/spack.lock"), *ROOT.glob("ci/**/spack.lock"))):
        print(f"{path.parent.relative_to(ROOT)}: {'pinned' if pin_lock(path) else 'up to date'}")


main()
