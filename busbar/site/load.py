# SPDX-License-Identifier: MIT
"""Finds and loads sites, families and link classes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from busbar.errors import BusbarError
from busbar.site.detect_local import local_facts
from busbar.site.family import Family, LinkClass, LinkClasses
from busbar.site.model import Site
from busbar.site.yamlfile import Document, parse

_CHECKOUT = Path(__file__).resolve().parents[2] / "site"
SITE_FILE = "site.yaml"
FAMILIES = "_families"


def search_path() -> list[Path]:
    """Where sites are looked for: ``BUSBAR_SITE_PATH`` (colon list) or `site/` of the checkout."""
    chosen = os.environ.get("BUSBAR_SITE_PATH", "")
    return [Path(part) for part in chosen.split(":") if part] or [_CHECKOUT]


def names() -> list[str]:
    """Every site that can be loaded by name, sorted."""
    return sorted(
        {
            file.parent.name
            for root in search_path()
            for file in root.glob(f"*/{SITE_FILE}")
            if not file.parent.name.startswith("_")
        }
    )


def find(name_or_path: str | Path) -> Path:
    """The `site.yaml` of a site, by name, directory or file.

    Raises ``BusbarError`` that lists what there is.
    """
    path = Path(name_or_path)
    if path.is_file():
        return path
    if path.is_dir() and (path / SITE_FILE).is_file():
        return path / SITE_FILE
    for root in search_path():
        candidate = root / str(name_or_path) / SITE_FILE
        if candidate.is_file() and not str(name_or_path).startswith("_"):
            return candidate
    known = ", ".join(names()) or "none"
    raise BusbarError(
        f"there is no site {str(name_or_path)!r}",
        where=":".join(map(str, search_path())),
        hint=f"known sites: {known}; BUSBAR_SITE_PATH names other directories",
    )


def load(name_or_path: str | Path) -> Site:
    """The site, with what its family shares filled in, and `local` detected now.

    Raises ``BusbarError`` with file, line, key, rule and next step.
    """
    document = Document(find(name_or_path))
    documents = [document]
    data = document.data
    if isinstance(data.get("family"), str):
        family_document = Document(_family_file(data["family"], document))
        shared = family_document.data.get("site") or {}
        data = merged(shared, data)
        documents.append(family_document)
    if data.get("name") == "local":
        data = merged(local_facts(), data)
    site = parse(Site, data, documents)
    if document.path.parent.name != site.name and document.path.name == SITE_FILE:
        raise BusbarError(
            f"the site is called {site.name!r} but its directory {document.path.parent.name!r}",
            where=document.where(["name"]),
            hint="rename one of the two",
        )
    return site


def family(name: str) -> Family:
    """The family of that name."""
    document = Document(_family_file(name, None))
    found = parse(Family, document.data, [document])
    if found.family != name:
        raise BusbarError(
            f"the family is called {found.family!r} but its file {name!r}",
            where=document.where(["family"]),
            hint="rename one of the two",
        )
    return found


def link_classes() -> dict[str, LinkClass]:
    """Every link class, by name."""
    return _link_classes(_family_file("links", None))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` on top of ``base``; mappings are merged, anything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        mappings = isinstance(known, dict) and isinstance(value, dict)
        result[key] = merged(cast(dict[str, Any], known), value) if mappings else value
    return result


@lru_cache
def _link_classes(path: Path) -> dict[str, LinkClass]:
    document = Document(path)
    return parse(LinkClasses, document.data, [document]).link_classes


def _family_file(name: str, asking: Document | None) -> Path:
    roots = [*search_path(), _CHECKOUT]
    if asking:
        # A site outside the search path may bring its own families beside it.
        roots.insert(0, asking.path.resolve().parent.parent)
    for root in roots:
        candidate = root / FAMILIES / f"{name}.yaml"
        if candidate.is_file():
            return candidate
    known = sorted(f.stem for r in roots for f in (r / FAMILIES).glob("*.yaml"))
    raise BusbarError(
        f"there is no family {name!r}",
        where=asking.where(["family"]) if asking else "",
        hint=f"known families: {', '.join(dict.fromkeys(known)) or 'none'}",
    )
