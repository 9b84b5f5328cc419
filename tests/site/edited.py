# SPDX-License-Identifier: MIT
"""A site of its own, and a site's file with one change."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

SHIPPED = Path(__file__).parents[2] / "site"


def edit(root: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    file = root / name / "site.yaml"
    data = yaml.safe_load(file.read_text())
    change(data)
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return file


def put(site: dict[str, Any], path: str, value: Any) -> None:
    """Set a key of a site; None removes it."""
    *steps, last = re.findall(r"[\w-]+|\[\]", path)
    place: Any = site
    for step in steps:
        place = place[int(step) if isinstance(place, list) else step]
    if last == "[]":
        place.append(value)
    elif value is None:
        del place[int(last) if isinstance(place, list) else last]
    else:
        place[int(last) if isinstance(place, list) else last] = value


def alone(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of one shipped site in ``root``, which comes before the shipped sites."""
    shutil.copytree(SHIPPED / name, root / name)
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(root))
    return root
