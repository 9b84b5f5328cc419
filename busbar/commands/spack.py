# SPDX-License-Identifier: MIT
"""``busbar spack``: find the environment of a site, and its settings for module files."""

from __future__ import annotations

import argparse
from copy import deepcopy
from typing import Any

import yaml

from busbar import data, spack
from busbar import site as sites
from busbar.site.delivery import DeliveryKind
from busbar.site.stacks import find_environment
from busbar.terminal import stdout

_HEAD = """\
# SPDX-License-Identifier: MIT
# Written by `busbar spack modules {site}`: what jobs of this site set for their fabric.
"""
_LANE_HELP = "lane of the environment (default: the first of the delivery)"


def add_parser(subparsers: Any) -> None:
    """Add ``busbar spack`` and its actions."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "spack",
        description="Find the Spack environment of a site, and write its module settings.",
    )
    commands = parser.add_subparsers(dest="spack_command", required=True, metavar="ACTION")

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


def _path(args: argparse.Namespace) -> int:
    site = sites.load(args.site)
    kind: DeliveryKind = "image" if args.image else "spack"
    directory, _, _ = find_environment(site, args.lane, kind, args.system)
    if args.installable:
        spack.require_installable(spack.load(directory / spack.FILE), args.site)
    if args.create:
        directory = spack.derived(directory)
    root = data.SITES.parent
    stdout().line(str(directory.relative_to(root) if root in directory.parents else directory))
    return 0


def _modules(args: argparse.Namespace) -> int:
    site = sites.load(args.site)
    _, delivery, lane = find_environment(site, args.lane)
    variables = sites.environment(site, stack=delivery.stack, lane=lane)
    every = {"all": {"environment": {"set": dict(sorted(variables.items()))}}}
    # Twice the same object is an alias in YAML.
    scope = {"modules": {"default": {"lmod": every, "tcl": deepcopy(every)}} if variables else {}}
    text = yaml.safe_dump(scope, sort_keys=False)
    stdout().text(_HEAD.format(site=site.name) + text)
    return 0
