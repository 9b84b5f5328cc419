# SPDX-License-Identifier: MIT
"""Writes a site to disk: its facts, and the ReFrame configuration that is the same for all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from busbar.errors import BusbarError
from busbar.site.model import NAME_PATTERN, Site

REFRAME_FILE = '''\
# SPDX-License-Identifier: MIT
"""ReFrame configuration, made from site.yaml."""

from pathlib import Path

from busbar.delivery.reframe import configuration

site_configuration = configuration(Path(__file__).parent)
'''


def facts(site: Site) -> dict[str, Any]:
    """What `site.yaml` states: the keys of the model that are not its defaults."""
    return site.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def write(site: Site, directory: Path) -> Path:
    """Writes `site.yaml` and `reframe.py`, the name being the directory's; the path of the first.

    Raises ``BusbarError`` when no site can be called so, when there is one already, or when the
    directory cannot be written.
    """
    file = directory / "site.yaml"
    name = directory.resolve().name
    if not re.fullmatch(NAME_PATTERN, name):
        raise BusbarError(
            f"{name!r} is no name of a site",
            where=str(directory),
            hint="name the directory with small letters, digits, and . _ - after the first",
        )
    if file.exists():
        raise BusbarError("is there already", where=str(file), hint="choose another directory")
    named = site.model_copy(update={"name": name})
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text(
            yaml.safe_dump(facts(named), sort_keys=False, width=99, allow_unicode=True)
        )
        (directory / "reframe.py").write_text(REFRAME_FILE)
    except OSError as error:
        raise BusbarError(f"cannot be written: {error.strerror}", where=str(file)) from error
    return file
