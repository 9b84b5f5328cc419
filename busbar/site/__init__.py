# SPDX-License-Identifier: MIT
"""The site model: what a system is made of, loaded from `site/<name>/site.yaml`."""

from __future__ import annotations

from busbar.site.load import family, link_classes, load, names
from busbar.site.model import Site
from busbar.site.tuning import environment, variables

__all__ = ["Site", "environment", "family", "link_classes", "load", "names", "variables"]
