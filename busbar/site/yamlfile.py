# SPDX-License-Identifier: MIT
"""YAML files checked against a model; errors name file, line, key, rule and next step."""

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
    """A YAML mapping that remembers where each key stands."""

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
                "there is no such file", where=shown(path), hint="see `busbar site list`"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise BusbarError(f"cannot be read: {error}", where=shown(path)) from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{shown(path)}:{mark.line + 1}" if mark else shown(path)
            problem = getattr(error, "problem", None) or str(error)
            raise BusbarError(
                f"is not YAML: {problem}", where=where, hint="correct the line"
            ) from error
        except RecursionError:
            raise BusbarError(
                "is nested too deeply", where=shown(path), hint="write a flat list or mapping"
            ) from None
        except ValueError as error:  # a value that its YAML type cannot have, as a 13th month
            raise BusbarError(
                f"holds a value that is none of its type: {error}",
                where=shown(path),
                hint="quote it, if it is text",
            ) from error
        if not isinstance(self.data, dict):
            raise BusbarError(
                "must be a mapping of keys to values",
                where=shown(path),
                hint="see the sites that ship",
            )

    def find(self, location: Location) -> tuple[int, int | None]:
        """How many steps of ``location`` are written here, and the line of the last of them."""
        node, line = self._node, None
        for depth, step in enumerate(location):
            found = _child(node, step)
            if found is None:
                return depth, line
            line, node = found
        return len(location), line

    def inside(self, key: str) -> Document:
        """The part under ``key`` as a document, empty where it is not written."""
        part = copy.copy(self)
        found = _child(self._node, key)
        part._node = found[1] if found else None
        part.data = self.data.get(key) or {}
        return part

    def where(self, location: Location) -> str:
        """``site/p5/site.yaml:12: fabric.rails``."""
        _, line = self.find(location)
        file = f"{shown(self.path)}:{line}" if line else shown(self.path)
        return f"{file}: {dotted(location)}" if location else file

    def _refuse_repeats(self, node: yaml.Node | None, done: dict[int, bool]) -> None:
        """Keys that are written twice, and nodes that hold themselves.

        ``done`` is False for the nodes around this one and True for those that were seen.
        """
        if node is None or isinstance(node, yaml.ScalarNode) or done.get(id(node)):
            return
        if id(node) in done:
            raise BusbarError(
                "an alias leads back to what holds it",
                where=self._line(node),
                hint="write the value in place of the alias",
            )
        done[id(node)] = False
        items = node.value
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise BusbarError(
                        f"key {key.value!r} is written twice",
                        where=self._line(key),
                        hint="keep one; YAML would silently take the last",
                    )
                seen.add(key.value)
            items = [value for _, value in node.value]
        for item in items:
            self._refuse_repeats(item, done)
        done[id(node)] = True

    def _line(self, node: yaml.Node) -> str:
        return f"{shown(self.path)}:{node.start_mark.line + 1}"


def parse(model: type[Model], data: object, documents: Sequence[Document]) -> Model:
    """``data`` as ``model``; an error is placed in that of ``documents`` which has its key."""
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
    """File, line and key in that of ``documents`` which has the key."""
    document = max(documents, key=lambda document: document.find(location)[0])
    return document.where(location)


def shown(path: Path) -> str:
    """The path as users name it: relative to where they are, if it is below."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def dotted(location: Location) -> str:
    """``node_types.gpu.nics[2].class``."""
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
    """What is wrong and what to do, of one entry of pydantic's ``errors()``."""
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        return "unknown key", "check the spelling, or remove it"
    if kind == "missing":
        return "this key is missing", "add it"
    if kind == "value_error":
        return str(error["ctx"]["error"]), "correct the file"
    shown_value = "" if isinstance(value, dict | list) else f" (it is {value!r})"
    return f"{error['msg']}{shown_value}", "correct the value"
