# SPDX-License-Identifier: MIT
"""A history of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the history, which does not exist yet."""
    monkeypatch.setenv("BUSBAR_HISTORY", str(tmp_path / "history"))
    return tmp_path / "history"
