# SPDX-License-Identifier: MIT
"""The schedulers and launchers of the installed ReFrame, and the launchers that it lacks."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache, partial
from typing import Any

from busbar.errors import suggestion

_USABLE = ("local", "slurm", "squeue")
"""Schedulers that need no library of their own."""
OWN_LAUNCHERS = ("flux-run",)
"""The launchers that `busbar.delivery.launchers` adds to ReFrame."""
_KNOWN = {"scheduler": (*_USABLE, "flux"), "launcher": ("local", "mpirun", "srun", *OWN_LAUNCHERS)}
"""Accepted without loading the backends of ReFrame, which takes longer than reading a site:
`explain` reads every site that ships."""
_INTERNAL = ("allocation", "srun-step")
"""Backends of `busbar.slurm.backends`, which sites cannot name."""


@lru_cache(maxsize=2)
def backends(kind: str) -> dict[str, str | None]:
    """Return the schedulers or launchers, and why one cannot be used on this machine.

    Without ReFrame, which only `busbar check` needs, nothing is known of them.
    """
    if not importlib.util.find_spec("reframe"):
        return {}
    inherited = "RFM_INSTALL_PREFIX" in os.environ
    registry: Any = importlib.import_module("reframe.core.backends")
    for module in getattr(registry, f"_{kind}_backend_modules"):
        importlib.import_module(module)
    if not inherited:
        os.environ.pop("RFM_INSTALL_PREFIX", None)  # ReFrame sets it on import
    registered = getattr(registry, f"_{kind}s").items()
    names = {name: error for name, (_, error) in registered if name not in _INTERNAL}
    return names | (dict.fromkeys(OWN_LAUNCHERS) if kind == "launcher" else {})


def unusable(scheduler: str) -> str:
    """Return why this machine cannot use a scheduler; empty if it can."""
    return "" if scheduler in _USABLE else backends("scheduler").get(scheduler) or ""


def _checked(kind: str, name: str) -> str:
    """Return a name; raise ``ValueError`` if ReFrame has no such scheduler or launcher."""
    if name not in _KNOWN[kind] and name not in (backends(kind) or (name,)):
        raise ValueError(f"unknown {kind} {name!r}; {suggestion(name, sorted(backends(kind)))}")
    return name


scheduler = partial(_checked, "scheduler")
launcher = partial(_checked, "launcher")
