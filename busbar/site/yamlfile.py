# SPDX-License-Identifier: MIT
"""Read YAML files and validate them; errors give file, line, key, rule and next step."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from busbar.errors import BusbarError

Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[int | str]
_NESTING = re.compile(r"[\[{?:-]")
_MOST_NESTING = 2000


def _loader(text: str) -> Any:
    """Return libyaml's loader, which is ten times as fast, if there is one.

    Deep nesting overflows its stack, at about 20,000 levels. Each level has one of these marks.
    """
    if len(_NESTING.findall(text)) > _MOST_NESTING:
        return yaml.SafeLoader
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Document:
    """A YAML mapping with the line of each key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = path.read_text(encoding="utf-8")
            self._node = yaml.compose(text, Loader=_loader(text))
            self.data: Any = self._node and yaml.constructor.SafeConstructor().construct_document(
                self._node
            )
            self._refuse_repeats(self._node, {})
        except FileNotFoundError:
            raise BusbarError(
                "no such file", where=shown(path), hint="see `busbar site list`"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise BusbarError(f"cannot be read: {error}", where=shown(path)) from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{shown(path)}:{mark.line + 1}" if mark else shown(path)
            problem = getattr(error, "problem", None) or str(error)
            raise BusbarError(
                f"invalid YAML: {problem}", where=where, hint="correct the line"
            ) from error
        except RecursionError:
            raise BusbarError(
                "nested too deeply", where=shown(path), hint="write a flat list or mapping"
            ) from None
        except ValueError as error:  # such as a date with month 13
            raise BusbarError(
                f"invalid value: {error}", where=shown(path), hint="quote it if it is text"
            ) from error
        if not isinstance(self.data, dict):
            raise BusbarError(
                "must be a mapping of keys to values",
                where=shown(path),
                hint="see the built-in sites",
            )

    def find(self, location: Location) -> tuple[int, int | None]:
        """Return how many steps of ``location`` the file has, and the line of the last one."""
        node, line = self._node, None
        for depth, step in enumerate(location):
            child = _child(node, step)
            if child is None:
                return depth, line
            line, node = child
        return len(location), line

    def inside(self, key: str) -> Document:
        """Return the part under ``key`` as a document; empty if the key is missing."""
        part = copy.copy(self)
        child = _child(self._node, key)
        part._node = child[1] if child else None
        part.data = self.data.get(key) or {}
        return part

    def where(self, location: Location) -> str:
        """Return file, line and key: ``site/p5/site.yaml:12: fabric.rails``."""
        _, line = self.find(location)
        file = f"{shown(self.path)}:{line}" if line else shown(self.path)
        return f"{file}: {dotted(location)}" if location else file

    def _refuse_repeats(self, node: yaml.Node | None, done: dict[int, bool]) -> None:
        """Refuse duplicate keys, and aliases to a node that contains the alias.

        ``done`` is False for the parents of this node and True for the nodes already checked.
        """
        if node is None or isinstance(node, yaml.ScalarNode) or done.get(id(node)):
            return
        if id(node) in done:
            raise BusbarError(
                "an alias refers to a node that contains it",
                where=self._line(node),
                hint="write the value instead of the alias",
            )
        done[id(node)] = False
        items = node.value
        if isinstance(node, yaml.MappingNode):
            keys = set()
            for key, _ in node.value:
                if key.value in keys:
                    raise BusbarError(
                        f"duplicate key {key.value!r}",
                        where=self._line(key),
                        hint="keep one; YAML would silently use the last",
                    )
                keys.add(key.value)
            items = [value for _, value in node.value]
        for item in items:
            self._refuse_repeats(item, done)
        done[id(node)] = True

    def _line(self, node: yaml.Node) -> str:
        return f"{shown(self.path)}:{node.start_mark.line + 1}"


def parse(model: type[Model], data: object, documents: Sequence[Document]) -> Model:
    """Validate ``data`` as ``model``; an error refers to the document that has its key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        location = [step for step in first["loc"] if step != "[key]"]
        more = error.error_count() - 1
        rule, hint = rule_of(first)
        if more:
            hint += f"; {more} more finding{'s' if more > 1 else ''} in this file"
        raise BusbarError(rule, where=written(documents, location), hint=hint) from error


def written(documents: Sequence[Document], location: Location) -> str:
    """Return file, line and key in the document that has the key."""
    document = max(documents, key=lambda document: document.find(location)[0])
    return document.where(location)


def shown(path: Path) -> str:
    """Return the path relative to the working directory if it is below, else as it is."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def dotted(location: Location) -> str:
    """Return a location as text: ``node_types.gpu.nics[2].class``."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _child(node: yaml.Node | None, step: int | str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    return None


def rule_of(error: Any) -> tuple[str, str]:
    """Return what is wrong and what to do for one entry of pydantic's ``errors()``."""
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        return "unknown key", "check the spelling, or remove it"
    if kind == "missing":
        return "missing key", "add it"
    if kind == "value_error":
        return str(error["ctx"]["error"]), "correct the file"
    got = "" if isinstance(value, dict | list) else f", got {value!r}"
    return f"{error['msg']}{got}", "correct the value"
