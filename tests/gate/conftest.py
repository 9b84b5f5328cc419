# SPDX-License-Identifier: MIT
"""A healthy node for every test, and no variables of the Slurm that runs the tests."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from busbar.gate import bounded
from busbar.gate.bounded import T, Task, TaskOutcome

from .node import UPTIME_S, Node, healthy

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


class AtOnce(Task[T]):
    """A task that runs in this process, which takes less time than a fork of all tests."""

    def __init__(self, work: Callable[[Callable[[T], None]], None], _: float) -> None:
        self.is_open = False
        self.outcome = TaskOutcome()
        try:
            work(self.outcome.values.append)
        except Exception as error:  # noqa: BLE001 - as in the child process
            self.outcome.problem = bounded._summary(error)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("active", "bounded", "passive", "run"):
        monkeypatch.setattr(f"busbar.gate.{name}.Task", AtOnce)
    monkeypatch.setattr("busbar.gate.copies.stay_near", lambda _: None)
    # A function to run before the program would make Python fork, and copy all pages of the tests.
    monkeypatch.setattr(bounded, "_die_with_parent", None)


@pytest.fixture
def in_process(request: pytest.FixtureRequest) -> None:
    """``at_once``, except for a case that needs processes of its own."""
    if not request.node.get_closest_marker("run"):
        request.getfixturevalue("at_once")


@pytest.fixture
def uptime(monkeypatch: pytest.MonkeyPatch, at_once: None) -> None:
    monkeypatch.setattr("busbar.gate.passive._uptime_s", lambda: UPTIME_S)
