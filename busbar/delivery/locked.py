# SPDX-License-Identifier: MIT
"""What the lock of a stack says: of the Spack environment, or the wheels that are installed."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

from busbar.errors import BusbarError
from busbar.spack import Lock, load

_HASH_SHOWN = 12


def lock_of(view: Path | None) -> Lock | None:
    """Return the lock of the active Spack environment or of a view; None if there is none."""
    directories = [Path(each) for each in [os.environ.get("SPACK_ENV", "")] if each]
    directories += [view.parents[1]] if view and view.parent.name == ".spack-env" else []
    for directory in directories:
        with suppress(BusbarError):
            return load(directory / "spack.lock")
    return None


def locked_versions(lock: Lock | None) -> dict[str, str]:
    """Return the NCCL that a lock names; nothing if it names several.

    A version of RCCL there is that of ROCm, which RCCL's log does not repeat.
    """
    found = {node.version for node in lock.named("nccl")} if lock else set()
    return {"nccl": found.pop().partition("-")[0]} if len(found) == 1 else {}


def packages(lock: Lock | None, *, wheels: bool) -> dict[str, str]:
    """Return what the history keeps of a stack: ``lock.NAME`` and version, ``lock_hash``."""
    found: dict[str, set[str]] = {}
    if lock:
        for node in lock.nodes.values():
            found.setdefault(node.name, set()).add(node.version)
    elif wheels:
        for each in distributions():
            found.setdefault(each.name, set()).add(each.version)
    if not found:
        return {}
    facts = {f"lock.{name}": ", ".join(sorted(found[name])) for name in sorted(found)}
    digest = lock.digest if lock else hashlib.sha256(repr(facts).encode()).hexdigest()
    return {"lock_hash": digest[:_HASH_SHOWN], **facts}
