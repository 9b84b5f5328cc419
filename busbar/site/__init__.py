# SPDX-License-Identifier: MIT
"""Sites: the model of a system, loaded from `site/<name>/site.yaml`, and its environment."""

from __future__ import annotations

from busbar.site.load import family, link_classes, load, names
from busbar.site.model import Site
from busbar.site.tuning import environment, variables

__all__ = ["Site", "environment", "family", "link_classes", "load", "names", "variables"]
