# SPDX-License-Identifier: MIT
"""GPU processes and load that ``nvidia-smi`` prints, and the first lines of machine reports."""

from __future__ import annotations

import re

from busbar.parse.messages import table
from busbar.parse.tables import beside

TABLE = table("nvidia_smi")
_TABLES = beside(__file__)
_REPORTS = {name: re.compile(words) for name, words in _TABLES["reports"].items()}
TRIGGERS = tuple(_TABLES["triggers"])
"""Texts in the first lines of a report, for `busbar.parse.triggers`."""


def parse_report(line: str) -> str | None:
    """Return the tool whose report on a machine begins with this line; None for other lines."""
    return next((name for name, regex in _REPORTS.items() if regex.match(line)), None)
