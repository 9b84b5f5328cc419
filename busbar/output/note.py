# SPDX-License-Identifier: MIT
"""A fact about a run that is not a fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from busbar.output.reading import Evidence
from busbar.redact import redact


@dataclass(frozen=True)
class Note:
    """A fact worth knowing; its id has an entry in ``busbar/explain/causes.yaml``."""

    id: str
    summary: str
    evidence: tuple[Evidence, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the keys of a cause, without confidence and remedy."""
        document: dict[str, Any] = {
            "id": self.id,
            "summary": redact(self.summary),
            "evidence": [e.to_json() for e in self.evidence],
        }
        return document | ({"details": self.details} if self.details else {})
