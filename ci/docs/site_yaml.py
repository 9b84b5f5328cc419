# SPDX-License-Identifier: MIT
"""The page of site.yaml."""

from __future__ import annotations

from busbar.site.family import Family, LinkClasses
from busbar.site.model import Site

from .schemas import schema_of, schema_tables

SITE_INTRO = """\
# Keys of site.yaml

`site/NAME/site.yaml` holds the keys of [Site](#site). Keys that it leaves out come from the key
`site` of its family, and its node types from the site that `nodes_like` names. Unknown keys are
refused. `busbar site lint NAME` checks a site. A bandwidth is in GB/s, 1e9 bytes per second.
"""


def site_page() -> str:
    """Every key of site.yaml, of a family and of links.yaml."""
    done: set[str] = set()
    lines = [SITE_INTRO]
    for title, model in (
        ("site/NAME/site.yaml", Site),
        ("site/_families/FAMILY.yaml", Family),
        ("site/_families/links.yaml", LinkClasses),
    ):
        lines += [
            f"## {title}",
            "",
            *schema_tables(schema_of(model, "validation"), model.__name__, done),
        ]
    return "\n".join(lines)
