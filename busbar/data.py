# SPDX-License-Identifier: MIT
"""Where the sites, the checks and the history are, and which commit this is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "shipped"  # only wheels have it, see setup.py

CHECKOUT = None if _INSTALLED.is_dir() else _PACKAGE.parent
"""The repository that this Busbar runs from; None if it was installed from a wheel."""

SITES = (CHECKOUT or _INSTALLED) / "site"
LIKE = "A system like "
"""How the description of a site begins that is a copy of another one."""
CHECKS = (CHECKOUT or _INSTALLED) / "reframe_checks"
PYTHON = (sys.executable, "-P", "-m")
"""Runs a module; it imports nothing from the working directory."""
OWN = (*PYTHON, "busbar")


def busbar(*words: str) -> list[str]:
    """Return a command of this Busbar."""
    return [*OWN, *words]


def history_directory() -> Path:
    """Return where ReFrame stores results: ``BUSBAR_HISTORY``, or its own default."""
    chosen = os.environ.get("BUSBAR_HISTORY", "")
    home = os.environ.get("HOME") or "/"
    return Path(chosen).absolute() if chosen else Path(home, ".reframe", "reports")


def to_install(extra: str) -> str:
    """Return how to install an extra: the package index has another package of our name."""
    wheel = f"busbar_hpc-{_number()}-py3-none-any.whl"
    return "run: make setup" if CHECKOUT else f"run: pip install './{wheel}[{extra}]'"


def full_version() -> str:
    """Return version and commit, as in ``0.1.0 (886ff82)``.

    A copy on PYTHONPATH has no version.
    """
    return f"{_number()} ({commit()})"


def _number() -> str:
    try:
        return version("busbar-hpc")
    except PackageNotFoundError:
        return "not installed"


def commit() -> str:
    """Return the commit from git or, without a repository, the one that the build recorded."""
    if CHECKOUT and (CHECKOUT / ".git").exists():
        describe = ["git", "describe", "--always", "--abbrev=7", "--exclude=*", "--dirty=+dirty"]
        try:
            return subprocess.check_output(
                describe, cwd=CHECKOUT, text=True, stderr=subprocess.DEVNULL
            ).strip()
        except (OSError, subprocess.CalledProcessError):
            return "commit unknown"  # no git, or a repository of another user
    recorded = _PACKAGE / "commit.txt"
    return recorded.read_text().strip() if recorded.exists() else "commit unknown"
