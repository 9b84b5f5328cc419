# SPDX-License-Identifier: MIT
"""Write a site to disk: its facts, and a ReFrame configuration that reads them."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from busbar.boundary import output_directory, replace_file
from busbar.data import LIKE, SITES
from busbar.errors import file_error
from busbar.parse.tables import beside, refused
from busbar.site.links import NAME_PATTERN
from busbar.site.model import Site

REFRAME_FILE = (SITES / "local" / "reframe.py").read_text(encoding="utf-8")
"""The configuration of ReFrame, which is the same for all sites."""


def facts(site: Site) -> dict[str, Any]:
    """Return the content of `site.yaml`: the keys without default values.

    Of several GPUs, links that are unknown are stated so.
    """
    content = site.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name, node in site.node_types.items():
        if node.gpus and node.gpus.count > 1 and node.gpus.links is None:
            content["node_types"][name]["gpus"]["links"] = None
    return content


_OF_ONE_SYSTEM = ("references", "proof", "hosts", "nodes_like", "gate", "tuning")
"""Keys that a new system does not share with the one that it is like."""


def write_like(like: Site, name: str, parent: Path) -> Path:
    """Write the first files of a site like another one into a directory of its name.

    Raises ``BusbarError`` as ``write``.
    """
    directory = parent / name
    content = {key: value for key, value in facts(like).items() if key not in _OF_ONE_SYSTEM}
    content |= {"name": name, "description": f"{LIKE}{like.name}"}
    comments = beside(__file__)
    for node in content["node_types"].values():
        node.get("gpus", {}).pop("bus_ids", None)
    for partition in content["partitions"]:
        partition.pop("nodelist", None)
        # By default, Slurm gives a job its nodes alone.
        if "--exclusive" in partition.get("access", ()):
            partition["access"].remove("--exclusive")
    text = comments["head"].format(like=like.name, directory=directory)
    for key, value in content.items():
        nested = isinstance(value, dict | list)
        part = yaml.safe_dump(
            value if nested else {key: value},
            sort_keys=False,
            width=95,
            allow_unicode=True,
            default_flow_style=None if nested else False,
        )
        part = f"{key}:\n{indent(part, '  ')}" if nested else part
        text += "\n" + indent(f"{comments[key]}\n" if key in comments else "", "# ") + part
    return _write(re.sub(comments["check"], r"\g<0>  # CHECK", text), directory)


def write(site: Site, directory: Path) -> Path:
    """Write `site.yaml` and `reframe.py`, named as the directory; return the path of `site.yaml`.

    Raises ``BusbarError`` for an invalid name, an existing site, or a directory that is not
    writable.
    """
    named = site.model_copy(update={"name": directory.resolve().name})
    return _write(
        yaml.safe_dump(facts(named), sort_keys=False, width=99, allow_unicode=True), directory
    )


def _write(text: str, directory: Path) -> Path:
    file = directory / "site.yaml"
    name = directory.resolve().name
    if not re.fullmatch(NAME_PATTERN, name):
        raise refused(__file__, "wrong-name", directory, name=name)
    if file.exists():
        raise refused(__file__, "exists", file)
    with file_error("cannot be written", file, "choose a directory that you can write to"):
        directory = output_directory(directory, "--output")
        replace_file(file, text)
        replace_file(directory / "reframe.py", REFRAME_FILE)
    return file
