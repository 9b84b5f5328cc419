# SPDX-License-Identifier: MIT
"""What the pages for contributors name exists, and the picture of the packages is the contract."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from tests.cases import cases

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"]
CODE = [
    (page.name, word) for page in PAGES for word in re.findall(r"`([^`\n]+)`", page.read_text())
]
NAMES = sorted({w for w in CODE if re.fullmatch(r"(busbar|reframe_checks)(\.\w+)+", w[1])})
PATHS = sorted({w for w in CODE if re.fullmatch(r"[\w.-]+/[\w./-]*|\w+\.(md|toml)", w[1])})


def resolve(name: str) -> object:
    """The module, class, function or method of a dotted name."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def test_there_is_something_to_look_at() -> None:
    assert len(NAMES) > 40
    assert len(PATHS) > 10


@cases(("page", "name"), NAMES)
def test_a_name_exists(page: str, name: str) -> None:
    resolve(name)


@pytest.mark.parametrize(
    "name", ["busbar.nowhere", "busbar.verdict.best", "busbar.verdict.Verdict.X"]
)
def test_another_name_does_not(name: str) -> None:
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        resolve(name)


@cases(("page", "path"), PATHS)
def test_a_path_exists(page: str, path: str) -> None:
    if "NAME" not in path:
        assert (ROOT / path).exists() or (ROOT / "tests" / path).exists()


@cases("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_picture_has_the_packages_in_the_order_of_the_contract() -> None:
    picture = PAGES[0].read_text().split("```")[1]
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = next(
        c for c in config["tool"]["importlinter"]["contracts"] if c["id"] == "packages"
    )
    layers = [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    order = re.findall(r"busbar\.(\w+)", picture)
    ranks = [next(n for n, layer in enumerate(layers) if package in layer) for package in order]
    assert ranks == sorted(ranks)
    packages = {path.parent.name for path in (ROOT / "busbar").glob("*/__init__.py")}
    assert packages <= set(order)
