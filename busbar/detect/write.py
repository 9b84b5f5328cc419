# SPDX-License-Identifier: MIT
"""Write a site to disk: its facts, and a ReFrame configuration that reads them."""

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
    """Return the content of `site.yaml`: the keys without default values."""
    return site.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def write(site: Site, directory: Path) -> Path:
    """Write `site.yaml` and `reframe.py`, named as the directory; return the path of `site.yaml`.

    Raises ``BusbarError`` for an invalid name, an existing site, or a directory that is not
    writable.
    """
    file = directory / "site.yaml"
    name = directory.resolve().name
    if not re.fullmatch(NAME_PATTERN, name):
        raise BusbarError(
            f"invalid site name {name!r}",
            where=str(directory),
            hint="use a directory name of lower-case letters and digits, then also . _ -",
        )
    if file.exists():
        raise BusbarError("already exists", where=str(file), hint="choose another directory")
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
