# SPDX-License-Identifier: MIT
"""The JSON document of ``busbar nightly``."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict  # pydantic refuses typing's before 3.12

from busbar.verdict import Verdict


class NightFinding(TypedDict):
    """What a stage says of a node, or of whatever it names."""

    where: str
    """A node, several with commas, or what a sweep accuses."""
    verdict: Verdict
    """Verdict on it."""
    message: str
    """Why; empty for a pass."""


class NightStage(TypedDict):
    """One stage of a night."""

    name: Literal["gate", "sweep", "check", "sample"]
    """``sample`` is the nightly set on some nodes, a part of the stage ``check``."""
    verdict: Verdict
    """``not run`` if it left no verdict."""
    message: str
    """One sentence."""
    finished: bool
    """Whether it came to its end; ``--resume`` repeats the others."""
    begun: str
    """ISO 8601, UTC; empty if it did not begin."""
    seconds: float
    """How long it took."""
    nodes: list[str]
    """The nodes that it was started on."""
    findings: list[NightFinding]
    """For the gate every node, else what is wrong; at most 1,000 of the checks."""


class NightlyDocument(TypedDict):
    """The verdict of a night."""

    schema: Literal["busbar-nightly/1"]
    """The schema of this document."""
    site: str
    """Name of the site."""
    partition: str
    """Partition of the site."""
    begun: str
    """ISO 8601, UTC."""
    verdict: Verdict
    """The worst of the stages; a stage that is missing did not run."""
    stages: list[NightStage]
    """The stages in their order."""
    left_out: list[str]
    """Nodes that failed the gate, which later stages left out."""
    unusable: list[str]
    """Nodes that Slurm starts no job on, with their state."""
    interrupted: str | None
    """The signal that ended the night; null if none did."""
    report: str
    """The first page of the report; empty without one."""
    output: str
    """Directory of the night."""
