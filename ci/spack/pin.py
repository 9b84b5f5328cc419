# SPDX-License-Identifier: MIT
"""Update the hashes of our programs in every lock, without a solve.

Runs in Spack's Python, after ci/spack/gpu_aware_source.py (`make spack-pin`). No package depends
on our programs (benchmarks and plugins), so a changed source, or a changed way to build it,
changes only one node of a lock: its package hash, and thus its own hash. A change of versions,
variants or dependencies needs `make spack-lock`. `make spack-verify` solves again and must find
the same.
"""

import json
from pathlib import Path

import spack.environment
import spack.hash_types
import spack.repo

ROOT = Path(__file__).resolve().parents[2]


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
    for path in sorted((*ROOT.glob("site/_stacks/**/spack.lock"), *ROOT.glob("ci/**/spack.lock"))):
        if "systems/debian12" not in path.with_name("spack.yaml").read_text():
            continue  # port.py makes it from another lock
        print(f"{path.parent.relative_to(ROOT)}: {'pinned' if pin_lock(path) else 'up to date'}")


main()
