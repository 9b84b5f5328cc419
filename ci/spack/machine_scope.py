# SPDX-License-Identifier: MIT
"""Write the scope of this machine: its compiler, and the externals that it has, by detection.

$ python -m ci.spack.machine_scope DIR [--site h200x4] [--gcc gcc-13] [--target zen3]

Names on standard error what a site needs and this machine lacks.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from busbar import site as sites
from busbar.errors import BusbarError, suggestion
from ci.spack.detect import KNOWN, SpackMachine, found_externals

HEAD = "# Written by ci/spack/machine_scope.py; add what it could not find.\n"
WRITTEN = ("packages", "concretizer")


def compiler(machine: SpackMachine, gcc: str) -> dict[str, Any]:
    """Return a gcc, whose suffix its g++ and gfortran share, as a package of the scope."""
    version = machine.printed(gcc, "-dumpfullversion").strip()
    names = {"c": "gcc", "cxx": "g++", "fortran": "gfortran"}
    paths = {
        language: shutil.which(re.sub(r"gcc(?=[^/]*$)", lambda _, name=name: name, gcc))
        for language, name in names.items()
    }
    missing = [names[language] for language, path in paths.items() if not path]
    if missing or not re.fullmatch(r"\d+(\.\d+)+", version):
        sys.exit(f"spack: no {', '.join(missing) or gcc} beside {gcc}; install it, or set GCC=")
    entry = {
        "spec": f"gcc@{version} languages:='c,c++,fortran'",
        "prefix": str(Path(str(paths["c"])).parents[1]),
        "extra_attributes": {"compilers": paths},
    }
    return {"buildable": False, "externals": [entry]}


def scope(machine: SpackMachine, gcc: str, target: str, arch: str) -> dict[str, dict[str, Any]]:
    """Return the files of the scope by name. A key with a colon replaces what others say."""
    packages: dict[str, Any] = {"gcc:": compiler(machine, gcc)}
    for name, entries in found_externals(machine, arch).items():
        if name in KNOWN["required"]:
            packages[name] = {"externals:": entries}
            if name not in KNOWN["pinned"]:
                packages[name]["buildable"] = False
        else:
            packages[f"{name}:"] = {"buildable": False, "externals": entries}
    files = {"packages": packages}
    if target:
        packages["all"] = {"target:": [target]}
        files["concretizer"] = {"targets": {"granularity": "microarchitectures"}}
    return files


def require_target(name: str) -> None:
    """Refuse a CPU that Spack does not know, which it would only do in the solve."""
    root = os.environ.get("SPACK_ROOT", "")
    file = Path(root, "lib/spack/spack/vendor/archspec/json/cpu/microarchitectures.json")
    if root and file.is_file():
        known = json.loads(file.read_text())["microarchitectures"]
        if name not in known:
            sys.exit(f"spack: no target {name!r}; {suggestion(name, sorted(known))}")


def write(directory: Path, files: dict[str, dict[str, Any]]) -> None:
    """Write the files of a scope; keep those that staff wrote or changed as NAME.old."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in WRITTEN:
        path = directory / f"{name}.yaml"
        text = HEAD + yaml.safe_dump({name: files[name]}, sort_keys=False) if name in files else ""
        old = path.read_text() if path.exists() else ""
        if old and old != text and (text or old.startswith(HEAD)):
            path.replace(f"{path}.old")
            print(f"spack: the former {path} is {path.name}.old now", file=sys.stderr)
        if text:
            path.write_text(text)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the scope of this machine.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="the scope to write")
    parser.add_argument("--site", default="", help="name what this site needs and is not found")
    parser.add_argument("--gcc", default="gcc", help="the C compiler (default: gcc)")
    parser.add_argument("--target", default="", help="CPU, as Spack names it (default: generic)")
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the packages are")
    args = parser.parse_args(arguments)
    machine = SpackMachine(args.root)
    stacks, arch = [], ""
    if args.site:
        try:
            site = sites.load(args.site)
        except BusbarError as error:
            sys.exit(f"spack: {error}")
        arch = site.node.gpus.arch if site.node.gpus else ""
        stacks = [each.stack for each in site.all_deliveries if each.kind == "spack"]
    if args.target:
        require_target(args.target)
    files = scope(machine, args.gcc, args.target, arch)
    try:
        write(args.directory, files)
    except OSError as error:
        sys.exit(f"spack: {error.filename}: cannot be written: {error.strerror}")
    found = {name.rstrip(":") for name in files["packages"]}
    missing = sorted({name for stack in stacks for name in KNOWN["needed"][stack]} - found)
    for line in [*machine.notes, *(f"{name} was not found" for name in missing)]:
        print(f"spack: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
