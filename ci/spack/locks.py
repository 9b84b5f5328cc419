# SPDX-License-Identifier: MIT
"""Check, record and compare the locks of the Spack environments, without Spack."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from busbar import data, site as sites
from busbar.errors import BusbarError, suggestion
from busbar.site import stacks, systems
from busbar.site.stacks import MANIFEST, STACKS, find_environment
from busbar.spack import FILE, Lock, LockedPackage, load

from . import check, inputs, manifest

ROOT = data.SITES / STACKS
_FOLLOWS = "a dependency changed"


def differences(old: Lock, new: Lock) -> list[str]:
    """Return the differences by root and by package; empty if both locks install the same.

    The order of a lock file changes from run to run of Spack, and two versions of Spack hash the
    same package differently, so the content is compared.
    """
    lines = [f"root {spec!r} removed" for spec in sorted(old.roots.keys() - new.roots.keys())]
    lines += [f"root {spec!r} added" for spec in sorted(new.roots.keys() - old.roots.keys())]
    for spec in sorted(old.roots.keys() & new.roots.keys()):
        was, now = old.nodes[old.roots[spec]], new.nodes[new.roots[spec]]
        if was.name != now.name:
            lines.append(f"root {spec!r}: {was} -> {now}")
    before_all, after_all = _by_content(old), _by_content(new)
    removed = [before_all[key] for key in before_all.keys() - after_all.keys()]
    added = [after_all[key] for key in after_all.keys() - before_all.keys()]
    for name in sorted({node.name for node in (*removed, *added)}):
        before = [node for node in removed if node.name == name]
        after = [node for node in added if node.name == name]
        if len(before) == len(after) == 1:
            lines.append(f"{before[0]} -> {after[0]}: {_reason(before[0], after[0])}")
        else:
            lines += [f"{node} removed" for node in before] + [f"{node} added" for node in after]
    # A changed package changes all that depend on it.
    return [line for line in lines if not line.endswith(_FOLLOWS)] or lines


def _by_content(lock: Lock) -> dict[str, LockedPackage]:
    """Return the packages by a digest of all that describes them, but for the hashes of Spack."""

    @cache
    def digest(key: str) -> str:
        raw = lock.nodes[key].raw
        edges = [{**edge, "hash": digest(edge["hash"])} for edge in raw.get("dependencies", ())]
        described = {**raw, **_facts(lock.nodes[key]), "hash": "", "parameters": {}}
        described["dependencies"] = sorted(edges, key=str)
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    return {digest(key): node for key, node in lock.nodes.items()}


def _reason(before: LockedPackage, after: LockedPackage) -> str:
    old, new = _facts(before), _facts(after)
    keys = sorted(old.keys() | new.keys())
    changed = [f"{k} {old.get(k)} -> {new.get(k)}" for k in keys if old.get(k) != new.get(k)]
    if before.package_hash != after.package_hash:
        changed.append("recipe or source")
    names = {edge.name for edge in before.edges} ^ {edge.name for edge in after.edges}
    if names:
        changed.append("dependencies " + ", ".join(sorted(names)))
    return "; ".join(changed) or _FOLLOWS


def _facts(node: LockedPackage) -> dict[str, Any]:
    names = ("version", "namespace", "target", "os", "prefix")
    # Spack 1.2 writes the one value of some variants without a list.
    variants = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in node.parameters.items()
    }
    return {name: getattr(node, name) for name in names} | variants


def chosen(names: list[str]) -> dict[str, manifest.Manifest]:
    """Return environments by name: by theirs, by a site that has them, by directory; else all."""
    table = stacks.environments(ROOT)
    every = {inputs.shown(path.parent, ROOT): path.parent for path in ROOT.glob(f"**/{FILE}")}
    # A derived lock need not be there; a lock without a line in the table must be named.
    solved = {name for name, each in table.items() if each.system == systems.BASE}
    chosen_all = sorted(every.keys() | solved)
    every |= {name: ROOT / name for name in table}
    directories: list[Path] = []
    for name in names or chosen_all:
        if name in every:
            directories.append(every[name])
        elif name in sites.names():
            site = sites.load(name)
            kept = [each for each in site.deliveries if each.kind == "spack" and each.environment]
            lanes = {lane for each in kept for lane in each.lanes}
            found = {find_environment(site)[0], *(find_environment(site, x)[0] for x in lanes)}
            directories += sorted(found)
        elif (Path(name) / MANIFEST).is_file() or stacks.shared(Path(name).absolute()):
            directories.append(Path(name).absolute())
        else:
            hint = suggestion(name, [*every, *sites.names()])
            raise BusbarError(f"no environment and no site {name!r}", where=str(ROOT), hint=hint)
    return {inputs.shown(each, ROOT): manifest.load(each / MANIFEST) for each in directories}


def _check(args: argparse.Namespace) -> int:
    """Check locks against manifests, pins and portability."""
    verdicts = {name: check.judge(item) for name, item in chosen(args.names).items()}
    if not args.names:
        verdicts[inputs.OTHERS] = check.judge_others(data.SITES.parent)
    for name, verdict in verdicts.items():
        result = f"{len(verdict.problems)} findings" if verdict.problems else "ok"
        own = f", concretized for {verdict.made_for}" if verdict.made_for else ""
        print(f"{name}: {result}{own}", *verdict.problems, sep="\n  ")
    return int(any(verdict.problems for verdict in verdicts.values()))


def _record(args: argparse.Namespace) -> int:
    """Write what determined a lock that was made just now; without NAME, the other scopes."""
    if not args.names:
        inputs.write_others(data.SITES.parent)
    for item in chosen(args.names).values() if args.names else ():
        inputs.write(item, load(item.lock), solved=not args.sources)
    return 0


def _manifests(args: argparse.Namespace) -> int:
    """Write manifests, and print the names."""
    table = stacks.environments(ROOT)
    for name in args.names or sorted(table):
        directory = ROOT / name if name in table else Path(name).absolute()
        stacks.provide(directory)
        shared = stacks.shared(directory)
        solved = shared is not None and shared.system == systems.BASE
        if args.solved in (None, solved):
            print(name)
    return 0


def _pins(args: argparse.Namespace) -> int:
    """Print what is behind or vulnerable, by lane."""
    found: dict[str, set[str]] = {}
    for item in chosen(args.names).values():
        lanes = [path.name for path in item.scopes if path.parent.name == "lanes"]
        lines = found.setdefault(lanes[0] if lanes else "no lane", set())
        lines.update(check.outdated(load(item.lock)))
    for lane, lines in sorted(found.items()):
        print(f"{lane}:", *sorted(lines), sep="\n  ")
    return 0


def _diff(args: argparse.Namespace) -> int:
    """Print the differences of two locks, by package."""
    lines = differences(load(args.old), load(args.new))
    print(*(lines or ["both locks install the same"]), sep="\n")
    return int(bool(lines))


def main(arguments: list[str] | None = None) -> int:
    """Return 0 without a finding or difference, 1 with one, 2 for invalid input."""
    parser = argparse.ArgumentParser(description=__doc__)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    made = {}
    for run in (_check, _record, _manifests, _pins, _diff):
        name = run.__name__.removeprefix("_")
        made[name] = one = actions.add_parser(name, help=run.__doc__)
        one.set_defaults(run=run)
        if run is not _diff:
            one.add_argument("names", nargs="*", metavar="NAME", help="environment or site")
    made["record"].add_argument("--sources", action="store_true", help="only gpu_aware changed")
    solved = made["manifests"].add_mutually_exclusive_group()
    solved.add_argument("--solved", action="store_true", default=None, help="solved locks only")
    solved.add_argument("--derived", action="store_false", dest="solved", help="derived ones only")
    made["diff"].add_argument("old", type=Path, metavar="OLD", help="a spack.lock")
    made["diff"].add_argument("new", type=Path, metavar="NEW", help="compared with it")
    args = parser.parse_args(arguments)
    try:
        return int(args.run(args))
    except BusbarError as error:
        print(f"locks: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
