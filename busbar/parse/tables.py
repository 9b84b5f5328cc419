# SPDX-License-Identifier: MIT
"""Tables in YAML beside the module that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from busbar.errors import BusbarError


def load_yaml(file: Path) -> Any:
    """Read a file of the package, by libyaml if there is one."""
    return yaml.load(file.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506


def load_all(file: Path) -> list[Any]:
    """Read a file of the package, then those of its name in the packages of tools."""
    return [
        load_yaml(each) for each in (file, *sorted(file.parents[1].glob(f"tools/*/{file.name}")))
    ]


def beside(module: str | Path) -> Any:
    """Read the file of a module's name."""
    return load_yaml(Path(module).with_suffix(".yaml"))


def refused(module: str | Path, which: str, where: object = "", /, **facts: object) -> BusbarError:
    """Return an error of a module's table: what is wrong, and the next step, with these facts.

    A list is written with commas.
    """
    words = {
        key: ", ".join(each) if isinstance(each, list) else each for key, each in facts.items()
    }
    what, hint = (text.format(**words) for text in beside(module)[which])
    return BusbarError(what, where=str(where), hint=hint)
