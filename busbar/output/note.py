# SPDX-License-Identifier: MIT
"""A fact about a run that is not a fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from busbar.documents import NoteRow
from busbar.output.reading import Evidence
from busbar.redact import redact


@dataclass(frozen=True)
class Note:
    """A fact worth knowing; its id has an entry in ``busbar/explain/causes.yaml``."""

    id: str
    summary: str
    evidence: tuple[Evidence, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> NoteRow:
        """Return the keys of a cause, without confidence and remedy."""
        document: NoteRow = {
            "id": self.id,
            "summary": redact(self.summary),
            "evidence": [e.to_json() for e in self.evidence],
        }
        if self.details:
            document["details"] = self.details
        return document
