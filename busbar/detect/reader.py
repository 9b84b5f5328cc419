# SPDX-License-Identifier: MIT
"""Read the outputs of tools: of this machine, or saved on another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from busbar.boundary import read_text
from busbar.detect.gather import TOOLS, Outputs
from busbar.errors import BusbarError, file_error
from busbar.parse.tables import refused
from busbar.site.yamlfile import dotted

Parsed = TypeVar("Parsed")
VENDOR_TOOLS = ("nvidia-smi", "amd-smi", "rocm-smi")
_MOST_BYTES = 64 * 2**20


@dataclass
class Reader:
    """Parses outputs; one that cannot be parsed becomes a remark instead of an error."""

    outputs: Outputs
    remarks: list[str] = field(default_factory=list)
    failed_gpu_tools: list[str] = field(default_factory=list)
    """The remarks on tools of a GPU vendor."""

    def remark(self, tool: str, text: str) -> None:
        """Add a remark on a tool."""
        self.remarks.append(text)
        if tool.startswith(VENDOR_TOOLS):
            self.failed_gpu_tools.append(text)

    def read(self, name: str, parser: Callable[[str], Parsed]) -> Parsed | None:
        """Return the parsed output of a tool; None if there is none, or it is damaged."""
        text = self.outputs.text.get(name)
        if text is None:
            return None
        try:
            return _parsed(parser, text)
        except ValueError as error:
            self.remark(name, f"{name}: {error}")
            return None

    def is_valid(self, model: type[BaseModel], facts: dict[str, Any], what: str) -> bool:
        """Return whether the facts are valid in a site; add a remark if not."""
        try:
            model.model_validate(facts)
        except ValidationError as error:
            first = error.errors()[0]
            key = dotted(first["loc"])
            self.remarks.append(
                f"{key} of {what} cannot be {str(first['input'])[:40]!r}; omitting {what}"
            )
            return False
        return True


def recorded(files: Sequence[Path]) -> Outputs:
    """Read outputs saved on another machine; each is recognised by its content.

    Raises ``BusbarError`` for a file that cannot be read or recognised, and for two different
    outputs of one tool.
    """
    text: dict[str, str] = {}
    origin: dict[str, Path] = {}
    for file in files:
        with file_error("cannot be read", file, "check path and permissions"):
            content = read_text(file, _MOST_BYTES, errors="replace")
        name = _recognised(file, content)
        if text.get(name, content) != content:
            raise refused(__file__, "second-output", file, name=name, first=origin[name])
        text[name], origin[name] = content, file
    for name in ("amd-smi static", "amd-smi topology"):
        if name in text:  # the JSON holds all that the text does
            text.pop(f"{name} (text)", None)
    return Outputs(text, recorded=True)


def _recognised(file: Path, content: str) -> str:
    """Return the tool that printed ``content``; raise ``BusbarError`` with the reason if none."""
    reasons: dict[str, str] = {}
    parsers = {name: row["parser"] for name, row in TOOLS.items() if "parser" in row}
    for name, parser in parsers.items():
        try:
            _parsed(resolve_name(parser), content)
        except ValueError as error:
            reasons[name] = str(error)
        else:
            return name
    if not content.strip():
        raise BusbarError("is empty", where=str(file), hint="save the output of the tool again")
    signs = {name: row["sign"] for name, row in TOOLS.items() if row.get("sign")}
    shown = (name for name, sign in signs.items() if re.search(sign, content, re.M | re.S))
    if likely := next(shown, None):
        raise refused(__file__, "damaged", file, likely=likely, reason=reasons[likely])
    known = [name for name in parsers if "(" not in name]
    raise refused(__file__, "unknown-output", file, known=known)


def _parsed(parser: Callable[[str], Parsed], text: str) -> Parsed:
    """Parse an output; raise ``ValueError`` for any kind of damage."""
    try:
        return parser(text)
    except (AttributeError, LookupError, TypeError, OverflowError, RecursionError) as error:
        # Damaged JSON and XML can still be well-formed, with values of another type.
        raise ValueError(f"the output is damaged: {error}") from error
