# SPDX-License-Identifier: MIT
"""Pin the sources of gpu_aware in its recipe, and our programs in every lock, without a solve.

Runs in Spack's Python (`make spack-pin`). No package depends on our programs (benchmarks and
plugins), so a changed source, or a changed way to build it, changes only one node of a lock: its
package hash, and thus its own hash. A change of versions, variants or dependencies needs `make
spack-lock`. `make spack-verify` solves again and must find the same.
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


def leaves(nodes):
    """Return the hashes of our packages on which no other depends, and that Spack builds."""
    used = {edge["hash"] for node in nodes.values() for edge in node.get("dependencies", ())}
    return [
        key
        for key, node in nodes.items()
        if node["namespace"] == "busbar" and "external" not in node and key not in used
    ]


def pin_lock(path):
    """Update the hashes of our programs in one lock; return whether any changed."""
    data = json.loads(path.read_text())
    specs = spack.environment.Environment(path.parent).specs_by_hash
    renewed = {}
    for old in leaves(data["concrete_specs"]):
        spec = specs[old].copy()
        spec._mark_root_concrete(False)
        spec.clear_caches()
        spec._cached_hash(spack.hash_types.package_hash, force=True)
        spec._mark_root_concrete()
        new = spec.dag_hash()
        if new != old:
            renewed[old] = {**spec.to_node_dict(hash=spack.hash_types.dag_hash), "hash": new}
    if not renewed:
        return False
    data["concrete_specs"] = {
        renewed.get(key, node)["hash"]: renewed.get(key, node)
        for key, node in data["concrete_specs"].items()
    }
    for root in data["roots"]:
        root["hash"] = renewed.get(root["hash"], root)["hash"]
    path.write_text(json.dumps(data, separators=(",", ":")))
    return True


def main():
    # Write the recipe before its first use, as Spack then caches the package class.
    pin_sources()
    for path in sorted((*ROOT.glob("site/_stacks/**/spack.lock"), *ROOT.glob("ci/**/spack.lock"))):
        if "systems/debian12" not in path.with_name("spack.yaml").read_text():
            continue  # port.py makes it from another lock
        print(f"{path.parent.relative_to(ROOT)}: {'pinned' if pin_lock(path) else 'up to date'}")


main()
