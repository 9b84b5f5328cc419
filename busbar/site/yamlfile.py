# SPDX-License-Identifier: MIT
"""Read YAML files and validate them; errors give file, line, key, rule and next step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from busbar.boundary import read_text
from busbar.errors import BusbarError, of_os, several
from busbar.parse.tables import refused
from busbar.site.plain import explained

Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[int | str]
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast
_MOST_DEPTH = 64
_MOST_NODES = 100_000
"""Nodes of a file with its aliases written out."""
_MOST_NUMBER = 64
"""Characters of a number or date; YAML's numbers of base 60 take quadratic time."""
_UNKNOWN = -1
_TEXT_TAG = "tag:yaml.org,2002:str"


def load_yaml(path: Path) -> tuple[yaml.Node | None, Any]:
    """Read an untrusted YAML file; return its nodes and its data.

    Raises ``BusbarError`` for invalid YAML, explicit tags, merge keys, and too large a file.
    """
    try:
        text = read_text(path)
        _refuse_events(text, path)
        node = yaml.compose(text, Loader=_LOADER)
        _expanded(node, shown(path), {})
        data = node and yaml.constructor.SafeConstructor().construct_document(node)
    except BusbarError:
        raise
    except FileNotFoundError:
        raise refused(__file__, "no-file", shown(path)) from None
    except OSError as error:
        raise of_os(error, "cannot be read", shown(path)) from error
    except UnicodeDecodeError as error:
        raise refused(__file__, "not-utf-8", shown(path), error=error) from error
    except yaml.YAMLError as error:
        # Where a text or a key begins says more than where the parser gives up.
        scans = str(getattr(error, "context", "")).startswith("while scanning")
        mark = getattr(error, "context_mark" if scans else "problem_mark", None)
        where = f"{shown(path)}:{mark.line + 1}" if mark else shown(path)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        line = "".join(text.splitlines()[mark.line : mark.line + 1]) if mark else ""
        hint = f"correct the line {line.strip()!r}" if line else "the file ends too early"
        if "\t" in line:
            hint = "indent with spaces: YAML allows no tabs"
        elif problem.startswith(("mapping values", "did not find expected '-'")):
            hint += ": indent it like the line before, or quote text with a colon"
        raise BusbarError(f"invalid YAML: {problem}", where=where, hint=hint) from error
    except RecursionError:
        raise refused(__file__, "deep", shown(path)) from None
    except Exception as error:
        raise refused(__file__, "invalid", shown(path), error=error) from error
    return node, data


def _refuse_events(text: str, path: Path) -> None:
    """Refuse what a file of facts does not need, before the nodes are built."""
    depth = 0
    file = shown(path)
    event: Any
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_DEPTH:
            raise refused(__file__, "deep", _line(file, event))
        if count > 2 * _MOST_NODES:
            raise refused(__file__, "large", _line(file, event), most=_MOST_NODES)
        if tag := getattr(event, "tag", None):
            raise refused(__file__, "tag", _line(file, event), tag=tag)
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
            raise refused(__file__, "merge", _line(file, event))


def _expanded(node: yaml.Node | None, file: str, sizes: dict[int, int]) -> int:
    """Return the number of nodes below ``node``, each alias written out.

    Refuses too many of them, and keys that a mapping has twice.
    """
    if node is None:
        return 0
    if isinstance(node, yaml.ScalarNode):
        if node.tag != _TEXT_TAG and len(node.value) > _MOST_NUMBER:
            raise refused(__file__, "long", _line(file, node), count=len(node.value))
        return 1
    if sizes.get(id(node)) == _UNKNOWN:
        raise refused(__file__, "endless", _line(file, node))
    if id(node) not in sizes:
        sizes[id(node)] = _UNKNOWN
        items = node.value
        if isinstance(node, yaml.MappingNode):
            items = [item for pair in node.value for item in pair]
            _refuse_repeats([key for key, _ in node.value], file)
        sizes[id(node)] = 1 + sum(_expanded(item, file, sizes) for item in items)
    if sizes[id(node)] > _MOST_NODES:
        raise refused(__file__, "large", _line(file, node), most=_MOST_NODES)
    return sizes[id(node)]


def _refuse_repeats(keys: Sequence[yaml.Node], file: str) -> None:
    known = set()
    for key in keys:
        if isinstance(key, yaml.ScalarNode) and key.value in known:
            raise refused(__file__, "twice", _line(file, key), key=key.value)
        known.add(str(key.value))


def _line(file: str, part: Any) -> str:
    """Return file and line of an event or a node."""
    return f"{file}:{part.start_mark.line + 1}"


class Document:
    """A YAML mapping with the line of each key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._node, self.data = load_yaml(path)
        if not isinstance(self.data, dict):
            raise refused(__file__, "no-mapping", shown(path))

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


def parse(model: type[Model], data: object, documents: Sequence[Document]) -> Model:
    """Validate ``data`` as ``model``; each error refers to the document that has its key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise several(errors_of(model, error, documents)) from error


def errors_of(
    model: type[BaseModel], error: ValidationError, documents: Sequence[Document]
) -> list[BusbarError]:
    """Return one error for each wrong key, in plain words."""
    errors = []
    entries = error.errors()
    for entry in entries:
        # Pydantic also calls a list too short from which wrong entries are missing.
        inside = any(other["loc"][:-1][: len(entry["loc"])] == entry["loc"] for other in entries)
        if entry["type"] == "too_short" and inside:
            continue
        location = [step for step in entry["loc"] if step != "[key]"]
        rule, hint = explained(model, entry)
        errors.append(BusbarError(rule, where=written(documents, location), hint=hint))
    return errors


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
