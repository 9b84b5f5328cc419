# SPDX-License-Identifier: MIT
"""A healthy node for every test, and no variables of the Slurm that runs the tests."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from .node import Node, healthy

# The gate imports these in a child process, each time. Here, all children have them already.
for _name in ("expect.floors", "explain.xid", "site.load"):
    importlib.import_module(f"busbar.{_name}")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    made = healthy(tmp_path / "node")
    monkeypatch.setenv("PATH", f"{made.root / 'bin'}:{os.environ['PATH']}")
    return made
