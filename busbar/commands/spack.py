# SPDX-License-Identifier: MIT
"""``busbar spack``: find environments, check and compare locks without Spack; module settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from busbar import data
from busbar import site as sites
from busbar.errors import BusbarError, suggestion
from busbar.site.delivery import DeliveryKind
from busbar.site.stacks import MANIFEST, STACKS, find_environment
from busbar.spack import check, fit, inputs, lock, manifest, modules
from busbar.terminal import stdout

EXIT_FINDINGS = 1
_LANE_HELP = "lane of the environment (default: the first of the delivery)"


def add_parser(subparsers: Any) -> None:
    """Add ``busbar spack`` and its actions."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "spack",
        description="Check, compare and find the locks of Spack environments, without Spack.",
    )
    commands = parser.add_subparsers(dest="spack_command", required=True, metavar="ACTION")

    one = commands.add_parser(
        "check",
        help="check each lock against its manifest, the required versions and portability",
        description=(
            "Check each lock against its manifest, the required versions and portability. Exit"
            " status: 0 no finding, 1 findings, 2 invalid input or nothing to do."
        ),
    )
    one.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="environment such as cuda-sm_90/ucx-current, its directory, or a site (default: all)",
    )
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_check)

    one = commands.add_parser(
        "record",
        help="record what determined a lock that was made just now (`make spack-lock` does)",
        description=(
            "Write what determined a lock to inputs.json beside it. Exit status: 0 recorded,"
            " 2 invalid input or nothing to do."
        ),
    )
    one.add_argument("names", nargs="+", metavar="NAME", help="environment or site")
    one.add_argument(
        "--sources",
        action="store_true",
        help="only the sources of gpu_aware have changed (`make spack-pin`)",
    )
    one.add_argument(
        "--machine",
        action="store_true",
        help="this machine made the lock for itself (`make spack-concretize`)",
    )
    one.set_defaults(run=_record)

    one = commands.add_parser(
        "diff",
        help="print the differences of two locks, by package",
        description=(
            "Print the differences of two locks by package, independent of their order. Exit"
            " status: 0 they install the same, 1 they differ, 2 invalid input."
        ),
    )
    one.add_argument("old", type=Path, metavar="OLD", help="a spack.lock")
    one.add_argument("new", type=Path, metavar="NEW", help="the spack.lock to compare with it")
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_diff)

    one = commands.add_parser(
        "path",
        help="print the directory of a site's environment, for spack -e",
        description=(
            "Print the directory of a site's environment: the one for the operating system of this"
            " machine, else for that of the site, else for Debian 12. Exit status: 0 printed,"
            " 2 the site has no such environment, or this machine cannot install its lock."
        ),
    )
    one.add_argument("site", metavar="SITE", help="name or directory of a site")
    one.add_argument("--lane", metavar="LANE", help=_LANE_HELP)
    kind = one.add_mutually_exclusive_group()
    kind.add_argument(
        "--image", action="store_true", help="print the environment that images are built from"
    )
    kind.add_argument(
        "--system",
        metavar="OS",
        help="print the environment for this operating system, such as rhel9",
    )
    kind.add_argument(
        "--installable",
        action="store_true",
        help="fail unless this machine has the operating system and the externals of its lock",
    )
    kind.add_argument(
        "--create",
        action="store_true",
        help="write its manifest for this machine's operating system if there is none",
    )
    one.set_defaults(run=_path)

    one = commands.add_parser(
        "modules",
        help="print a modules.yaml that sets the variables of a site in every module file",
        description=(
            "Print a modules.yaml of Spack that sets the variables of a site in every module file."
            " Exit status: 0 printed, 2 the site has no such environment."
        ),
    )
    one.add_argument("site", metavar="SITE", help="name or directory of a site")
    one.add_argument("--lane", metavar="LANE", help=_LANE_HELP)
    one.set_defaults(run=_modules)


def _environments() -> dict[str, manifest.Manifest]:
    stacks = data.SITES / STACKS
    every = {_name(item.path.parent): item for item in manifest.find(stacks)}
    if not every:
        raise BusbarError(
            "no Spack environment (NAME/spack.yaml) is installed",
            where=str(stacks),
            hint="run busbar from a checkout of its repository, which contains the environments",
        )
    return every


def _chosen(names: list[str]) -> dict[str, manifest.Manifest]:
    every = _environments()
    chosen: dict[str, manifest.Manifest] = {}
    for name in names or every:
        if name in every:
            chosen[name] = every[name]
        elif name in sites.names():
            chosen |= _of_site(name)
        elif (Path(name) / MANIFEST).is_file():
            chosen[name] = manifest.load(Path(name) / MANIFEST)
        else:
            raise BusbarError(
                f"no environment and no site {name!r}",
                where=str(data.SITES / STACKS),
                hint=suggestion(name, [*every, *sites.names()]),
            )
    return chosen


def _of_site(name: str) -> dict[str, manifest.Manifest]:
    """Return the environments of all lanes of a site, which may be beside it."""
    site = sites.load(name)
    _, delivery, _ = find_environment(site)
    paths = sorted({find_environment(site, lane)[0] for lane in delivery.lanes})
    return {_name(path): manifest.load(path / MANIFEST) for path in paths}


def _name(path: Path) -> str:
    stacks = data.SITES / STACKS
    return str(path.relative_to(stacks) if path.is_relative_to(stacks) else path)


def _check(args: argparse.Namespace) -> int:
    verdicts = {name: check.judge(item) for name, item in _chosen(args.names).items()}
    if args.json:
        stdout().document({name: verdict.problems for name, verdict in verdicts.items()}, indent=2)
    else:
        for name, verdict in verdicts.items():
            result = f"{len(verdict.problems)} findings" if verdict.problems else "ok"
            own = f", concretized for {verdict.made_for}" if verdict.made_for else ""
            stdout().line(f"{name}: {result}{own}")
            for sentence in verdict.problems:
                stdout().line(f"  {sentence}")
    return EXIT_FINDINGS if any(verdict.problems for verdict in verdicts.values()) else 0


def _record(args: argparse.Namespace) -> int:
    for item in _chosen(args.names).values():
        inputs.write(item, lock.load(item.lock), solved=not args.sources, machine=args.machine)
    return 0


def _diff(args: argparse.Namespace) -> int:
    lines = lock.differences(lock.load(args.old), lock.load(args.new))
    if args.json:
        stdout().document(lines, indent=2)
    else:
        for line in lines or ["both locks install the same"]:
            stdout().line(line)
    return EXIT_FINDINGS if lines else 0


def _path(args: argparse.Namespace) -> int:
    site = sites.load(args.site)
    kind: DeliveryKind = "image" if args.image else "spack"
    directory, _, _ = find_environment(site, args.lane, kind, args.system)
    if args.installable:
        fit.require_installable(lock.load(directory / lock.FILE), args.site)
    if args.create:
        directory = fit.derived(manifest.load(directory / MANIFEST))
    root = data.SITES.parent
    stdout().line(str(directory.relative_to(root) if root in directory.parents else directory))
    return 0


def _modules(args: argparse.Namespace) -> int:
    site = sites.load(args.site)
    _, delivery, lane = find_environment(site, args.lane)
    stdout().text(modules.text(site, delivery.stack, lane))
    return 0
