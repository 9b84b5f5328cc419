# SPDX-License-Identifier: MIT
"""A site's file with one change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml


def edit(root: Path, name: str, change: Callable[[dict[str, Any]], object]) -> Path:
    file = root / name / "site.yaml"
    data = yaml.safe_load(file.read_text())
    change(data)
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return file
