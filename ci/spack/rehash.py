# SPDX-License-Identifier: MIT
"""Write locks whose graph is known, without a solve: rehash.py ENVIRONMENT...

Runs in Spack's Python, with directories of environments. One for Debian 12, the system of images,
gets the hashes of the recipes as they are now. One for another system gets the lock of the same
environment for Debian 12, with the operating system, the compiler and the C library of its own.
A solve gives the same unless versions, variants or dependencies changed, or depend on these;
`make spack-verify` solves.
"""

import json
import re
import sys
from pathlib import Path

import spack
import spack.environment
import spack.hash_types
import spack.repo
import spack.traverse
import spack.util.spack_yaml
import spack.variant
import spack.version

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ROOT / "site/_families/spack/systems"


def adapt(spec, system, gcc, versions):
    """Change one package to another system."""
    spec._mark_root_concrete(False)
    spec.clear_caches()
    spec.architecture.os = system
    if spec.name in versions:
        spec.versions = spack.version.VersionList([spack.version.Version(versions[spec.name])])
    if spec.name == "gcc":
        spec.external_path = gcc["prefix"]
        spec.extra_attributes = gcc["extra_attributes"]
        known = spack.repo.PATH.get_pkg_class("gcc").variants.items()
        for name in list(spec.variants):
            declared = [when for when, variants in known if name in variants]
            if declared and not any(spec.satisfies(when) for when in declared):
                del spec.variants[name]


def hidden(spec):
    """Return what Spack 1.1 adds to an external after it has hashed it, and take it away."""
    namespace, spec.namespace = spec.namespace, None
    commit = {name: spec.variants.pop(name) for name in ("commit",) if name in spec.variants}
    return namespace, commit


def rehash(directory):
    """Write the lock of one environment."""
    system = re.search(r"/systems/(\S+)", (directory / "spack.yaml").read_text())[1]
    base = Path(str(directory).replace(f"-{system}", ""))
    scope = SYSTEMS / system
    packages = spack.util.spack_yaml.load((scope / "packages.yaml").read_text())["packages"]
    (gcc,) = packages["gcc"]["externals"]
    compiler = re.search(r"@(\S+)", gcc["spec"])[1]
    glibc = re.search(r"^GLIBC=(.+)", (scope / "os-release").read_text(), re.MULTILINE)[1]
    versions = {"gcc": compiler, "gcc-runtime": compiler, "glibc": glibc}

    data = json.loads((base / "spack.lock").read_text())
    roots = spack.environment.Environment(base).specs_by_hash.values()
    specs = {spec.dag_hash(): spec for spec in spack.traverse.traverse_nodes(roots, key=id)}
    for spec in specs.values():
        adapt(spec, system, gcc, versions)
    for spec in specs.values():
        spec._cached_hash(spack.hash_types.package_hash, force=True)
    for spec in specs.values():
        spec._mark_root_concrete()
    first = spack.spack_version_info[:2] == (1, 1)
    later = {key: hidden(spec) for key, spec in specs.items() if spec.external and first}
    hashes = {key: spec.dag_hash() for key, spec in specs.items()}
    for key, (namespace, commit) in later.items():
        specs[key].namespace = namespace
        specs[key].variants.update(commit)
    for root in data["roots"]:
        root["hash"] = hashes[root["hash"]]
    data["concrete_specs"] = {
        hashes[key]: {**spec.to_node_dict(hash=spack.hash_types.dag_hash), "hash": hashes[key]}
        for key, spec in specs.items()
    }
    (directory / "spack.lock").write_text(json.dumps(data, separators=(",", ":")))
    print(f"{directory}: hashed again" if base == directory else f"{directory}: from {base}")


for argument in sys.argv[1:]:
    rehash(Path(argument))
