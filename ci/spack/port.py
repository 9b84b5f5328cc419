# SPDX-License-Identifier: MIT
"""Write the locks of environments for other systems, without a solve: port.py NAME...

Runs in Spack's Python. Each lock is that of the same environment for Debian 12, with the operating
system, the compiler and the C library of its own system. A solve gives the same unless a recipe
asks for one of these; `make spack-verify` solves.
"""

import json
import re
import sys
from pathlib import Path

import spack.environment
import spack.hash_types
import spack.repo
import spack.traverse
import spack.util.spack_yaml
import spack.variant
import spack.version

ROOT = Path(__file__).resolve().parents[2]
STACKS = ROOT / "site/_stacks"
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
    """Take from an external what the solver adds after it has hashed it, and return it."""
    namespace, spec.namespace = spec.namespace, None
    commit = {name: spec.variants.pop(name) for name in ("commit",) if name in spec.variants}
    return namespace, commit


def port(name):
    """Write the lock of one environment."""
    manifest = (STACKS / name / "spack.yaml").read_text()
    system = re.search(r"/systems/(\S+)", manifest)[1]
    base = STACKS / name.replace(f"-{system}", "")
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
    later = {key: hidden(spec) for key, spec in specs.items() if spec.external}
    hashes = {key: spec.dag_hash() for key, spec in specs.items()}
    for key, (namespace, commit) in later.items():
        specs[key].namespace = namespace
        specs[key].variants.update(commit)
    for root in data["roots"]:
        root["hash"] = hashes[root["hash"]]
    data["concrete_specs"] = {
        hashes[key]: {
            **spec.to_node_dict(hash=spack.hash_types.dag_hash),
            "hash": hashes[key],
        }
        for key, spec in specs.items()
    }
    (STACKS / name / "spack.lock").write_text(json.dumps(data, separators=(",", ":")))
    print(f"{name}: ported from {base.relative_to(STACKS)}")


for each in sys.argv[1:]:
    port(each)
