# SPDX-License-Identifier: MIT
"""Operating systems by the names that Spack gives them: `sles15`, `rhel9`, `ubuntu24.04`."""

from __future__ import annotations

import platform
import re
from functools import lru_cache
from pathlib import Path

from busbar import data
from busbar.site.yamlfile import load_yaml

BASE = "debian12"
"""The system of the images, and of the locks from which those for others are made."""
SCOPES = data.SITES / "_families/spack/systems"
_GUARD = "include.yaml"
# Spack takes these names from the Python package distro, which renames them.
_RENAMED = {"ol": "oracle", "opensuse-leap": "opensuse"}


def of_machine() -> str:
    """Return the operating system of this machine; empty if it has no os-release."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:  # no os-release
        return ""
    name = release.get("ID", "")
    version = release.get("VERSION_ID", "")
    if name != "ubuntu":
        version = re.split(r"[^\w-]", version)[0]
    return f"{_RENAMED.get(name, name)}{version}"


def accepted(scope: Path) -> frozenset[str]:
    """Return the systems on which Spack installs a lock for the system of a scope.

    They are those that its guard names: a system and its rebuilds, which have the same compiler
    and C library.
    """
    _, guard = load_yaml(scope / _GUARD)
    return frozenset(
        name
        for entry in guard["include"]
        for name in re.findall(r'"(?P<name>[^"]+)"', entry["when"])
    )


@lru_cache
def locked(name: str) -> str:
    """Return the system whose locks a system can install; itself if there are none."""
    scopes = sorted(scope for scope in SCOPES.glob("*") if (scope / _GUARD).is_file())
    return next((scope.name for scope in scopes if name in accepted(scope)), name)
