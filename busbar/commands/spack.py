# SPDX-License-Identifier: MIT
"""``busbar spack``: check and compare locks without Spack; write module settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from busbar import data
from busbar.errors import BusbarError
from busbar.spack import check, lock, manifest, modules
from busbar.terminal import stdout

EXIT_FINDINGS = 1
_SITES_HELP = "environment below site/, such as p5 or p5/ucx-current (default: all)"


def add_parser(subparsers: Any) -> None:
    """Add ``busbar spack`` and its actions."""
    parser: argparse.ArgumentParser = subparsers.add_parser("spack")
    commands = parser.add_subparsers(dest="spack_command", required=True, metavar="ACTION")

    one = commands.add_parser(
        "check",
        help="check each lock against its manifest, the required versions and portability",
        description="Exit status: 0 no finding, 1 findings, 2 invalid input or nothing to do.",
    )
    one.add_argument("sites", nargs="*", metavar="SITE", help=_SITES_HELP)
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_check)

    one = commands.add_parser(
        "diff",
        help="print the differences of two locks, by package",
        description="Exit status: 0 they install the same, 1 they differ, 2 invalid input.",
    )
    one.add_argument("old", type=Path, metavar="OLD", help="a spack.lock")
    one.add_argument("new", type=Path, metavar="NEW", help="the spack.lock to compare with it")
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_diff)

    one = commands.add_parser(
        "modules",
        help="compare each site's modules.yaml with the tuning of its family",
        description=(
            "Exit status: 0 equal or written, 1 some differ, 2 invalid input or nothing to do."
        ),
    )
    one.add_argument("sites", nargs="*", metavar="SITE", help=_SITES_HELP)
    one.add_argument("--write", action="store_true", help="write the files that differ")
    one.set_defaults(run=_modules)


def _chosen(names: list[str]) -> dict[str, manifest.Manifest]:
    every = {
        item.path.parent.relative_to(data.SITES).as_posix(): item
        for item in manifest.find(data.SITES)
    }
    if not every:
        raise BusbarError(
            "no Spack environment (NAME/spack.yaml) is installed",
            where=str(data.SITES),
            hint="run busbar from a checkout of its repository, which contains the environments",
        )
    for name in names:
        if name not in every:
            raise BusbarError(
                f"no manifest site/{name}/spack.yaml", hint=f"known: {', '.join(every)}"
            )
    return {name: every[name] for name in names or every}


def _check(args: argparse.Namespace) -> int:
    problems = {name: check.problems(item) for name, item in _chosen(args.sites).items()}
    if args.json:
        stdout().document(problems, indent=2)
    else:
        for name, sentences in problems.items():
            stdout().line(f"{name}: {'ok' if not sentences else f'{len(sentences)} findings'}")
            for sentence in sentences:
                stdout().line(f"  {sentence}")
    return EXIT_FINDINGS if any(problems.values()) else 0


def _diff(args: argparse.Namespace) -> int:
    lines = lock.differences(lock.load(args.old), lock.load(args.new))
    if args.json:
        stdout().document(lines, indent=2)
    else:
        for line in lines or ["both locks install the same"]:
            stdout().line(line)
    return EXIT_FINDINGS if lines else 0


def _modules(args: argparse.Namespace) -> int:
    status = 0
    for name, item in _chosen(args.sites).items():
        path, text = modules.path(item), modules.text(item)
        if path.name not in {scope.name for scope in item.scopes}:
            continue
        if path.exists() and path.read_text() == text:
            continue
        if args.write:
            path.write_text(text)
            stdout().line(f"{name}: written")
        else:
            stdout().line(f"{name}: differs from its family; run `busbar spack modules --write`")
            status = EXIT_FINDINGS
    return status
