# SPDX-License-Identifier: MIT
"""All rules, and the patterns declared next to them. Importing it checks the catalogue."""

from __future__ import annotations

from busbar.explain import (  # noqa: F401 - each declares causes
    catalog,
    containers,
    declared,
    notes,
    rules_end,
    rules_fabric,
    rules_machine,
    rules_mpi,
    rules_nccl,
    rules_ranks,
    without_band,
)

RULES = catalog.rules()
PATTERNS = catalog.patterns()
