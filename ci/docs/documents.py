# SPDX-License-Identifier: MIT
"""The page of the JSON documents, and their schemas."""

from __future__ import annotations

from functools import reduce
from operator import or_
from pathlib import Path
from pydoc import locate
from typing import Any, NamedTuple

import yaml
from pydantic import ConfigDict

from busbar.site.family import LaunchRule, OperatorStep
from busbar.site.model import Site

from .markdown import table
from .schemas import schema_of, schema_tables, type_text


class ShownSite(Site):
    """One system, with what its family says about operators and launches."""

    model_config = ConfigDict(title="Site")

    operator_steps: tuple[OperatorStep, ...] = ()
    launch_rules: tuple[LaunchRule, ...] = ()


class JsonDocument(NamedTuple):
    """A JSON document that a command prints."""

    name: str
    command: str
    kind: object
    mode: str = "serialization"

    @property
    def file(self) -> str:
        """The file of its schema."""
        return f"{self.name.replace('/', '-')}.json"

    def schema(self) -> dict[str, Any]:
        """Its JSON schema; each object may get more keys in a later release."""
        head = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:{self.name.replace('/', ':')}",
            "title": self.command,
        }
        return head | schema_of(self.kind, self.mode)


Variables = dict[str, str]


def documents() -> list[JsonDocument]:
    """Return every document of documents.yaml."""
    rows = yaml.safe_load(Path(__file__).with_name("documents.yaml").read_text("utf-8"))
    found = []
    for name, row in rows.items():
        one: Any = reduce(or_, map(locate, row["kinds"]))
        kind = {"list": list[one], "one or list": one | list[one]}.get(row.get("form"), one)
        found.append(JsonDocument(name, row["command"], kind, row.get("mode", "serialization")))
    return found


def json_page() -> list[str]:
    """Every document with its schema and the keys of its objects."""
    rows, types, done = [], [], set[str]()
    for document in documents():
        schema = document.schema()
        name = getattr(document.kind, "__name__", "")
        link = f"[`{document.name}`](schemas/{document.file})"
        if document.kind is ShownSite:
            rows.append((f"`{document.command}`", link, "[Site](site-yaml.md#site)"))
            continue
        top = f"[{name}](#{name.lower()})" if "properties" in schema else type_text(schema)
        rows.append((f"`{document.command}`", link, top))
        types += list(schema_tables(schema, name, done))
    head = table(("command", "schema", "form"), rows)
    return [*head, "## Objects", "", *types]
