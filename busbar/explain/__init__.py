# SPDX-License-Identifier: MIT
"""From what the tools printed to a cause, its evidence and a remedy."""

from __future__ import annotations

from busbar.engine.reading import Cause, Evidence, Note, Reading
from busbar.explain.core import explain
from busbar.explain.model import Explanation
from busbar.parse.text import Source

__all__ = ["Cause", "Evidence", "Explanation", "Note", "Reading", "Source", "explain"]
