# SPDX-License-Identifier: MIT
"""The page of the checks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import reframe.core.config
import reframe.core.runtime
import yaml
from reframe.frontend.loader import RegressionCheckLoader

from .markdown import plain, quoted, table

ROOT = Path(__file__).resolve().parents[2]
ASSERTIONS = {
    "ranks": "The job has the requested ranks, all of one job, on the requested nodes.",
    "placement": "Each rank uses the GPU it should use; no two ranks use the same one.",
    "transport": "The intended transport carried the data.",
    "data": "The tool validated the data and found no wrong element.",
    "metrics": "The program ended well, and every requested size has a reading.",
    "report": "The tool's JSON agrees with its table.",
    "dip": "The bandwidth does not fall after its peak as messages grow.",
    "low": "No reading is below its band.",
    "impossible": "No reading is above the limit of the links.",
    "mode": "The log shows that the mode is in use.",
    "gain": "The largest message gains from the mode what it should.",
    "plugin": "NCCL's network plugin names the versions and the topology file of the site.",
}
CHECKS_INTRO = """\
# Checks

`busbar check --list` says which of these run on a site, and why the others do not. Systems and
environments are conditions on features, as ReFrame reads them: `+osu +cuda` needs both features,
`-cpx` needs the feature to be absent, and one of several entries is enough. The assertions are
those of `tests/reframe/minimum.yaml`; a test shows for each that the check fails without it.
"""


def checks_page() -> str:
    """Every check by its file; then the assertions and the variables."""
    config = reframe.core.config.load_config("<builtin>")
    config.select_subconfig()
    reframe.core.runtime.init_runtime(config)
    tests = RegressionCheckLoader([str(ROOT / "reframe_checks")]).load_all()
    minimum = yaml.safe_load((ROOT / "tests/reframe/minimum.yaml").read_text(encoding="utf-8"))
    variants: dict[type, list[Any]] = {}
    for test in sorted(tests, key=lambda test: sys.modules[type(test).__module__].__file__):
        if not test.is_fixture():
            variants.setdefault(type(test), []).append(test)
    lines, module = [CHECKS_INTRO], ""
    for kind, each in variants.items():
        if kind.__module__ != module:
            module = kind.__module__
            question, _, runs = (sys.modules[module].__doc__ or "").partition("\n\n")
            lines += [f"## {plain(question)}", ""]
            lines += ["```", runs.strip(), "```", ""] if runs else []
        summary = each[0].descr[0].upper() + each[0].descr[1:]
        lines += [f"### {kind.__name__}", "", f"{summary}. {plain(kind.__doc__)}", ""]
        lines += table(("property", "value"), _check_rows(kind, each, minimum[kind.__name__]))
    lines += ["## Assertions", ""]
    lines += table(("assertion", "meaning"), ((f"`{k}`", v) for k, v in ASSERTIONS.items()))
    lines += ["## Variables", "", "Set them with `-S [CHECK.]VARIABLE=VALUE`.", ""]
    lines += table(("variable", "default", "of", "meaning"), _variable_rows(variants))
    return "\n".join(lines)


def _check_rows(kind: Any, variants: list[Any], asserts: list[str]) -> Iterator[tuple[str, str]]:
    yield "tags", quoted(sorted(set().union(*(test.tags for test in variants))))
    yield "systems", quoted(variants[0].valid_systems)
    yield "environments", quoted(variants[0].valid_prog_environs)
    for name, parameter in kind.param_space.params.items():
        yield f"parameter `{name}`", quoted(parameter.values)
    yield "time limit", f"{variants[0].time_limit / 60:g} minutes"
    if unknown := set(asserts) - set(ASSERTIONS):
        sys.exit(f"{kind.__name__}: describe the assertions {sorted(unknown)} in {__file__}")
    yield "asserts", quoted(asserts)


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
