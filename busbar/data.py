# SPDX-License-Identifier: MIT
"""Paths of sites, checks and history, and the commit of this installation."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from busbar.program import call

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "shipped"  # exists only in wheels, see setup.py

CHECKOUT = None if _INSTALLED.is_dir() else _PACKAGE.parent
"""The repository that Busbar runs from; None if it was installed from a wheel."""

SITES = (CHECKOUT or _INSTALLED) / "site"
LIKE = "A system like "
"""Start of the description of a site that was copied from another site."""
CHECKS = (CHECKOUT or _INSTALLED) / "reframe_checks"
PYTHON = (sys.executable, "-P", "-m")
"""Runs a module without importing from the working directory."""
OWN = (*PYTHON, "busbar")


def busbar(*words: str) -> list[str]:
    """Return a command line of this Busbar installation."""
    return [*OWN, *words]


def history_directory() -> Path:
    """Return the directory of ReFrame's results: ``BUSBAR_HISTORY``, or ReFrame's default."""
    chosen = os.environ.get("BUSBAR_HISTORY", "")
    home = os.environ.get("HOME") or "/"
    return Path(chosen).absolute() if chosen else Path(home, ".reframe", "reports")


def to_install(extra: str) -> str:
    """Return how to install an extra: on the package index, our name is another package."""
    wheel = f"busbar_hpc-{_number()}-py3-none-any.whl"
    return "run: make setup" if CHECKOUT else f"run: pip install './{wheel}[{extra}]'"


def full_version() -> str:
    """Return version and commit, such as ``0.1.0 (886ff82)``.

    A copy on PYTHONPATH does not have a version.
    """
    return f"{_number()} ({commit()})"


def _number() -> str:
    try:
        return version("busbar-hpc")
    except PackageNotFoundError:  # run from a directory of sources
        return "not installed"


@cache
def commit() -> str:
    """Return the commit from git or, without a repository, from the build."""
    if CHECKOUT and (CHECKOUT / ".git").exists():
        options = ("--always", "--abbrev=7", "--exclude=*", "--dirty=+dirty")
        described = call(["git", "-C", CHECKOUT, "describe", *options]).stdout.strip()
        return described or "commit unknown"  # no git, or another user's repository
    recorded = _PACKAGE / "commit.txt"
    return recorded.read_text().strip() if recorded.exists() else "commit unknown"
