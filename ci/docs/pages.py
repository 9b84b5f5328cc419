# SPDX-License-Identifier: MIT
"""The pages that are one table or a few: causes, checks of the gate, sites and their keys."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import reframe.core.config
import reframe.core.runtime
import yaml
from reframe.frontend.loader import RegressionCheckLoader

from busbar import cli, commands, site as sites
from busbar.check.listing import FEATURES
from busbar.engine.assertions import ASSERTIONS as OF_LAUNCHES
from busbar.expect.topology import domain_nodes
from busbar.explain.catalog import CAUSES, NOTES
from busbar.explain.page import page
from busbar.gate.site import CHECKS
from busbar.parse.tables import beside, load_yaml
from busbar.site.family import Family, LinkClasses
from busbar.site.model import Site
from busbar.site.stacks import shared
from busbar.site.systems import BASE
from busbar.words import grouped
from ci.sbom import ROOT, licence, parts

from .markdown import plain, quoted, table
from .schemas import schema_of, schema_tables

# ---- The page of the checks
_WORDS = yaml.safe_load(Path(__file__).with_name("checks.yaml").read_text("utf-8"))
PARAMETERS, TAGS = _WORDS["parameters"], _WORDS["tags"]
ASSERTIONS = {
    name: plain((each.__doc__ or "").partition("\n\n")[0]) for name, each in OF_LAUNCHES.items()
} | _WORDS["assertions"]


def checks_page() -> list[str]:
    """Every check by its file; then the assertions and the variables."""
    minimum = yaml.safe_load((ROOT / "tests/reframe/minimum.yaml").read_text(encoding="utf-8"))
    tests = sorted(_checks(), key=lambda test: sys.modules[type(test).__module__].__file__)
    variants = grouped((type(test), test) for test in tests if not test.is_fixture())
    lines, module = list[str](), ""
    for kind, each in variants.items():
        if kind.__module__ != module:
            module = kind.__module__
            question, _, runs = (sys.modules[module].__doc__ or "").partition("\n\n")
            lines += [f"## {plain(question)}", ""]
            lines += ["```", runs.strip(), "```", ""] if runs else []
        lines += [f"### {kind.__name__}", "", _summary(each[0].descr, plain(kind.__doc__)), ""]
        asserts = minimum.get(kind.__name__, [*ASSERTIONS])
        lines += table(("property", "value"), _check_rows(kind, each, asserts))
    lines += ["## Tags", ""]
    lines += table(("tag", "selects", "time"), ((f"`{k}`", *v) for k, v in TAGS.items()))
    lines += ["## Parameters", ""]
    lines += table(("parameter", "meaning"), ((f"`{k}`", v) for k, v in PARAMETERS.items()))
    lines += ["## Features", "", "`busbar check --require FEATURE` fails if one is missing.", ""]
    rows = ((f"`{name}`", *feature[1:4]) for name, feature in FEATURES.items())
    lines += table(("feature", "what it is", "provided by", "how to get it"), rows)
    lines += ["## Assertions", ""]
    lines += table(("assertion", "meaning"), ((f"`{k}`", v) for k, v in ASSERTIONS.items()))
    lines += ["## Variables", "", "Set them with `-S [CHECK.]VARIABLE=VALUE`.", ""]
    lines += table(("variable", "default", "of", "meaning"), _variable_rows(variants))
    return lines


@cache
def _checks() -> list[Any]:
    config = reframe.core.config.load_config("<builtin>")
    config.select_subconfig()
    reframe.core.runtime.init_runtime(config)
    checks: list[Any] = RegressionCheckLoader([str(ROOT / "reframe_checks")]).load_all()
    return checks


def _summary(description: str, docstring: str) -> str:
    """Description and docstring, unless that only repeats it; names keep their case."""
    if "_" not in description.split(" ", maxsplit=1)[0] and not description.startswith("nccl"):
        description = description[0].upper() + description[1:]
    repeated = docstring.rstrip(".").lower() in description.lower()
    return f"{description}." if repeated else f"{description}. {docstring}"


def _check_rows(kind: Any, variants: list[Any], asserts: list[str]) -> Iterator[tuple[str, str]]:
    yield "tags", quoted(sorted(set().union(*(test.tags for test in variants))))
    yield "systems", quoted(variants[0].valid_systems)
    yield "environments", quoted(variants[0].valid_prog_environs)
    _refuse_undescribed(kind, "parameters", set(kind.param_space.params) - set(PARAMETERS))
    conditions = " ".join(variants[0].valid_systems + variants[0].valid_prog_environs)
    features = set(re.findall(r"[+-](?P<feature>[\w-]+)", conditions))
    _refuse_undescribed(kind, "features", features - set(FEATURES))
    _refuse_undescribed(kind, "tags", set().union(*(t.tags for t in variants)) - set(TAGS))
    for name, parameter in kind.param_space.params.items():
        yield f"parameter `{name}`", quoted(parameter.values)
    yield "time limit", f"{variants[0].time_limit / 60:g} minutes"
    _refuse_undescribed(kind, "assertions", set(asserts) - set(ASSERTIONS))
    yield "asserts", quoted(asserts)


def _refuse_undescribed(kind: Any, what: str, names: set[str]) -> None:
    if names:
        place = "busbar/check/listing.py" if what == "features" else __file__
        sys.exit(f"{kind.__name__}: describe the {what} {sorted(names)} in {place}")


def _variable_rows(variants: Mapping[type, list[Any]]) -> Iterator[tuple[str, str, str, str]]:
    described: dict[tuple[str, str], str] = {}
    form = re.compile(r"((?:^    #: .*\n)+)    (\w+) = variable\(", re.MULTILINE)
    for path in sorted((ROOT / "reframe_checks").glob("*.py")):
        for part in re.split(r"(?m)^(?=class )", path.read_text(encoding="utf-8")):
            owner = part.partition("(")[0].removeprefix("class ")
            for text, name in form.findall(part):
                described[owner, name] = plain(text.replace("#:", ""))
    for (owner, name), text in described.items():
        users = [k for k in variants if owner in {base.__name__ for base in k.__mro__}]
        if not users or name.startswith("asked_"):
            continue
        defaults = dict.fromkeys(str(getattr(k, name, "")) for k in users)
        of = "all" if len(users) == len(variants) else quoted(k.__name__ for k in users)
        yield f"`{name}`", quoted(value for value in defaults if value), of, text


# ---- The command line
# ---- The page of the command line
def cli_page() -> Iterator[str]:
    """Every command with its options."""
    parser = cli.build_parser(commands.SUMMARIES)
    yield from (f"{parser.epilog}", "")
    yield from _commands(parser)


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows, below = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = list(action.choices.values())
            continue
        if action.help == argparse.SUPPRESS:
            continue
        words = action.option_strings or [action.metavar or action.dest]
        value = ""
        if action.nargs != 0 and action.option_strings:
            choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
            value = f" {action.metavar or choices or action.dest.upper()}"
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        rows.append((quoted(f"{word}{value}" for word in words), plain(text)))
    yield from table(("option", "meaning"), rows)
    for child in below:
        yield from (f"## `{child.prog}`", "")
        for part in (child.description or "").split("\n\n"):
            example = f"```\n{dedent(part)}\n```" if part.startswith(" ") else plain(part)
            yield from (example, "")
        yield from _commands(child)


# ---- The page of the environment variables
VARIABLES = ROOT / "busbar/variables.yaml"
PRODUCT = ("busbar", "reframe_checks")
READ = re.compile(
    r"""os\.environ(?:\[|\.(?:get|setdefault)\()\s*"(\w+)"|"(\w+)" (?:not )?in os\.environ\b"""
)


def environment_page() -> list[str]:
    """Every variable that the code reads, with its entry in variables.yaml."""
    meanings = load_yaml(VARIABLES)
    code = _code(*PRODUCT, "containers", "ci", "site", ".ci", "tests", "Makefile")
    read = {name for names in READ.findall(_code(*PRODUCT)) for name in names if name}
    read |= set(re.findall(r"\bBUSBAR_[A-Z_]*[A-Z]\b", code))
    if unknown := read - {name for group in meanings.values() for name in group}:
        sys.exit(f"describe in busbar/variables.yaml: {', '.join(sorted(unknown))}")
    words = set(re.findall(r"\w+", code))
    lines: list[str] = []
    for title, group in meanings.items():
        if unused := group.keys() - words:
            sys.exit(f"busbar/variables.yaml: nothing reads {', '.join(sorted(unused))}")
        lines += [f"## {title}", ""]
        rows = ((f"`{name}`", plain(text)) for name, text in group.items())
        lines += table(("variable", "meaning"), rows)
    return lines


def _code(*parts: str) -> str:
    # The programs in src/ read what launchers set for each rank.
    foreign = ("tests/data", "tests/docs", "ci/docs", "reframe_checks/src")
    files = (path for part in parts for path in (ROOT / part, *(ROOT / part).rglob("*")))
    return "\n".join(
        path.read_text(encoding="utf-8", errors="ignore")
        for path in files
        if path.is_file() and path.suffix != ".pyc"
        if not path.relative_to(ROOT).as_posix().startswith(foreign)
    )


# ---- The page of licences, from the locks and `locks/licenses.list`
LOCKS: dict[str, str] = beside(__file__)


def locks(pattern: str) -> list[Path]:
    """Return the locks of a pattern, without those that are derived for other systems."""
    found = [(path, shared(path.parent)) for path in sorted(ROOT.glob(pattern))]
    return [path for path, own in found if own is None or own.system == BASE]


def licenses_page() -> list[str]:
    """One row for each package and version, in the first section that has it."""
    lines, seen = list[str](), set()
    for title, pattern in LOCKS.items():
        found = {
            (f"`{each.name}`", each.version, licence(each)[0])
            for path in locks(pattern)
            for each in parts(path)
        }
        rows = sorted(found - seen)
        seen |= found
        lines += [f"## {title}", "", *table(("package", "version", "licence"), rows)]
    return lines


# ---- The command line
_KEYS = {
    "site/NAME/site.yaml": Site,
    "site/_families/FAMILY.yaml": Family,
    "site/_families/links.yaml": LinkClasses,
}


def causes_page() -> Iterator[str]:
    """Yield a table of all causes, one of all notes, and the page of each cause."""
    causes = ((f"[`{name}`](#{name})", entry.meaning) for name, entry in CAUSES.items())
    yield from table(("cause", "meaning"), causes)
    notes = ((f"`{name}`", meaning) for name, meaning in NOTES.items())
    yield from table(("note", "meaning"), notes)
    for name in CAUSES:
        yield from page(name)


def gate_page() -> Iterator[str]:
    """Yield one row for each check of the gate."""
    rows = (
        (
            *(f"`{name}`", plain(facts.title), facts.severity),
            *(f"`{facts.action}`", plain(facts.remedy)),
        )
        for name, facts in CHECKS.items()
    )
    return table(("check", "of", "severity", "action", "remedy"), rows)


def keys_page() -> Iterator[str]:
    """Yield every key of site.yaml, of a family and of links.yaml."""
    done: set[str] = set()
    for title, model in _KEYS.items():
        yield from (f"## {title}", "")
        yield from schema_tables(schema_of(model, "validation"), model.__name__, done)


def sites_page() -> Iterator[str]:
    """Yield one row for each site that ships."""
    rows = (_row(sites.load(name)) for name in sites.names())
    return table(("site", "hardware", "ports of a node", "scheduler", "proof"), rows)


def _row(site: Site) -> Iterator[str]:
    yield f"`{site.name}`"
    yield plain(site.description)
    counts: Counter[str] = Counter()
    for nic in site.node.nics if site.name != "local" else ():
        counts[nic.link_class] += nic.count
    domain = domain_nodes(site.node)
    inside = [f"NVLink to {domain} nodes"] if domain > 1 else []
    yield ", ".join([*inside, *(f"{n} x {name}" for name, n in counts.items())]) or "none"
    yield site.scheduler
    yield site.proof
