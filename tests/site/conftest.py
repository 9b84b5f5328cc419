# SPDX-License-Identifier: MIT
"""Copies of the sites, to be broken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SHIPPED = Path(__file__).parents[2] / "site"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sites and families in a directory of their own."""
    root = tmp_path / "sites"
    for file in [
        *SHIPPED.glob("*/*.py"),
        *SHIPPED.glob("*/site.yaml"),
        *SHIPPED.glob("_families/*.yaml"),
    ]:
        target = root / file.relative_to(SHIPPED)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(root))
    return root
