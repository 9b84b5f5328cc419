# SPDX-License-Identifier: MIT
"""JSON schemas of typed models, and their keys as tables."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from inspect import cleandoc
from itertools import pairwise
from operator import or_
from pathlib import Path
from pydoc import locate
from typing import Any, NamedTuple, cast, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from busbar.document import JsonKey, keys_of
from busbar.seal import KEY, Sealed
from busbar.site.family import LaunchRule, OperatorStep
from busbar.site.model import Site

from .markdown import plain, table


# ---- The page of the JSON documents, and their schemas
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
_SEAL = "Checksum of the other keys; a document that was changed later is refused"


def documents() -> Iterator[JsonDocument]:
    """Yield every document of documents.yaml."""
    rows = yaml.safe_load(Path(__file__).with_name("documents.yaml").read_text("utf-8"))
    for name, row in rows.items():
        one: Any = reduce(or_, map(locate, row["kinds"]))
        kind = {"list": list[one], "one or list": one | list[one]}.get(row.get("form"), one)
        yield JsonDocument(name, row["command"], kind, row.get("mode", "serialization"))


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
    return [*table(("command", "schema", "form"), rows), "## Objects", "", *types]


# ---- Schemas
UNITS = {r"gb_per_s$": "GB/s", r"(^|_)us$": "us", r"_mib$": "MiB", r"^bytes$": "bytes"}


DOCS: dict[str, dict[str, str]] = {}
"""The docstrings of fields and enumeration members, by the class of each schema made so far."""


@cache
def _learn(kind: type) -> None:
    """Add the docstrings in a class and its bases to ``DOCS``."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith(("busbar.", "ci.")):
            (tree,) = ast.parse(cleandoc("\n" + inspect.getsource(base))).body
            found |= _field_docs(cast("ast.ClassDef", tree))
    DOCS[kind.__name__] = found


def _field_docs(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for pair in pairwise(node.body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=value),
                ast.Expr(ast.Constant(str(doc))),
            ):
                keywords = value.keywords if isinstance(value, ast.Call) else []
                alias = [ast.literal_eval(k.value) for k in keywords if k.arg == "alias"]
                yield (alias or [name])[0], doc
            case ast.Assign(value=ast.Constant(str(name))), ast.Expr(ast.Constant(str(doc))):
                yield name, doc  # a member of an enumeration


class _Schema(GenerateJsonSchema):
    """Describes dataclasses as :func:`busbar.document.to_json` writes them."""

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().dataclass_schema(schema)
        kind, own = schema["cls"], found.pop("properties")
        found["description"] = kind.__doc__
        found["properties"] = properties = {}
        found["required"] = required = []
        for rule in keys_of(kind):
            if rule.inline:
                hint = get_type_hints(kind)[rule.attribute]
                several = get_args(hint) or (hint,)
                for one in several:
                    inner = self.generate_inner(TypeAdapter(one).core_schema)
                    inner = self.get_schema_from_definitions(inner["$ref"]) or {}
                    properties |= inner["properties"]
                    required += inner["required"] if len(several) == 1 else []
            else:
                properties[rule.key] = self._field(kind, rule, own)
                required += [] if rule.omit else [rule.key]
        if issubclass(kind, Sealed):
            properties[KEY] = {"type": "string", "description": _SEAL}
            required.append(KEY)
        return found

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        if "cls" in schema:
            _learn(schema["cls"])
        return super().generate_inner(schema)

    def _field(self, kind: type, rule: JsonKey, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of one key."""
        function = getattr(getattr(kind, rule.attribute, None), "fget", None)
        docs = DOCS.get(kind.__name__, {}).get(rule.attribute) or getattr(
            function, "__doc__", None
        )
        field = dict(own.get(rule.attribute, ()))
        field.pop("default", None)
        if converted := function or rule.by:
            nullable = any("null" in each.values() for each in field.get("anyOf", ()))
            of_value = get_type_hints(converted)["return"]
            core = TypeAdapter(of_value | None if nullable else of_value).core_schema
            field = self.generate_inner(core)
        if rule.omit and "anyOf" in field:
            (field,) = (each for each in field["anyOf"] if each != {"type": "null"})
        return field | ({"description": plain(docs)} if docs else {})


def schema_of(kind: object, mode: Any) -> dict[str, Any]:
    """The JSON schema of a type, with the docstrings of the fields."""
    document = TypeAdapter(kind).json_schema(mode=mode, schema_generator=_Schema)
    for each in (document, *document.get("$defs", {}).values()):
        docs = DOCS.get(each.pop("title", ""), {})
        if "description" in each:
            each["description"] = plain(each["description"])
        for name, field in each.get("properties", {}).items():
            field.pop("title", None)
            if name in docs:
                field["description"] = plain(docs[name])
    return document


def type_text(schema: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one for each form
    """A type in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_text(each) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    if "prefixItems" in schema:
        return f"[{', '.join(type_text(each) for each in schema['prefixItems'])}]"
    if schema.get("type") == "array":
        return f"list of {type_text(schema['items'])}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        names = [*schema.get("patternProperties", {}).values(), inner]
        return f"map of name to {type_text(names[0]) if isinstance(names[0], dict) else 'any'}"
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<="}
    limits = " and ".join(f"{sign} {schema[key]}" for key, sign in bounds.items() if key in schema)
    return f"{schema.get('type', 'any')} {limits}".strip()


def schema_tables(schema: Mapping[str, Any], name: str, done: set[str]) -> Iterator[str]:
    """A table of the keys of an object, then those of the objects in it, each once."""
    definitions = dict(schema.get("$defs", {}))
    if "properties" in schema:
        definitions = {name: schema} | definitions
    for each, definition in definitions.items():
        if each in done:
            continue
        done.add(each)
        yield from (f"### {each}", "")
        if text := definition.get("description"):
            yield from (text, "")
        if "enum" in definition:
            docs = DOCS.get(each, {})
            rows = ((f"`{word}`", plain(docs.get(word))) for word in definition["enum"])
            yield from table(("value", "meaning"), rows)
            continue
        yield from table(
            ("key", "type", "unit", "default", "meaning"),
            (_row(key, field, definition) for key, field in definition["properties"].items()),
        )


def _row(key: str, field: Mapping[str, Any], definition: Mapping[str, Any]) -> Iterator[str]:
    yield f"`{key}`"
    # A key that may be left out is null then; nobody writes that.
    yield type_text(field).removesuffix(" or null" if "default" in field else "")
    yield next((unit for pattern, unit in UNITS.items() if re.search(pattern, key)), "")
    default = json.dumps(field["default"]) if field.get("default") is not None else ""
    yield "required" if key in definition.get("required", ()) else default and f"`{default}`"
    yield field.get("description", "")
