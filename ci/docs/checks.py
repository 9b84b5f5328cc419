# SPDX-License-Identifier: MIT
"""The page of the checks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import reframe.core.config
import reframe.core.runtime
import yaml
from reframe.frontend.loader import RegressionCheckLoader

from busbar.check.listing import FEATURES
from busbar.engine.assertions import ASSERTIONS as OF_LAUNCHES

from .markdown import plain, quoted, table

ROOT = Path(__file__).resolve().parents[2]
_WORDS = yaml.safe_load(Path(__file__).with_name("checks.yaml").read_text("utf-8"))
PARAMETERS, TAGS = _WORDS["parameters"], _WORDS["tags"]
ASSERTIONS = {
    name: plain((each.__doc__ or "").partition("\n\n")[0]) for name, each in OF_LAUNCHES.items()
} | _WORDS["assertions"]


def checks_page() -> list[str]:
    """Every check by its file; then the assertions and the variables."""
    minimum = yaml.safe_load((ROOT / "tests/reframe/minimum.yaml").read_text(encoding="utf-8"))
    variants: dict[type, list[Any]] = {}
    for test in sorted(_checks(), key=lambda test: sys.modules[type(test).__module__].__file__):
        if not test.is_fixture():
            variants.setdefault(type(test), []).append(test)
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
