# SPDX-License-Identifier: MIT
"""The preflight report: one line per question, the origin of each library, one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from busbar.document import in_json
from busbar.parse.tables import load_yaml
from busbar.site.delivery import Stack
from busbar.site.links import Name


class Fingerprint(BaseModel):
    """The keys of an image's fingerprint.json that are used; other keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    stack: Stack
    lane: Name = "image"
    delivery: Name | None = None
    features: list[Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_-]*$")]] = Field(
        default_factory=list
    )
    """Names that ReFrame allows as features."""


class Status(StrEnum):
    """The status of one line or of a report."""

    READY = "ready"
    SLOW = "slow"
    """It works on a slower path."""
    BROKEN = "broken"
    """It fails, or does something other than requested."""


_SEVERITY = (Status.READY, Status.SLOW, Status.BROKEN)


@dataclass(frozen=True)
class PreflightLine:
    """One question and its answer."""

    name: str
    status: Status
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Origin:
    """A library as the loader resolves it inside the container."""

    name: str
    path: str
    """In the container; empty if the library is missing."""
    origin: str
    """``image``, ``injected`` (from a bound directory), ``driver`` (--nv) or ``missing``."""
    sha256: str = ""
    """Checksum of the file: equal checksums are the same build."""


@dataclass(frozen=True)
class LaunchLine:
    """The parts of a launch line: ``outside enter inside PROGRAM``."""

    outside: tuple[str, ...]
    """The launcher on the host; empty if the launcher of the image starts the ranks."""
    enter: tuple[str, ...]
    """The command prefix that runs a command inside the image; each call is one container."""
    inside: tuple[str, ...]
    """The launcher inside the image; empty if the launcher of the host starts the ranks."""
    mpi_type: str
    """The value of ``srun --mpi``; empty for other launchers."""


@dataclass(frozen=True)
class PreflightReport:
    """The result of preflight for one image on one site."""

    schema: Literal["busbar-preflight/1"] = field(default="busbar-preflight/1", kw_only=True)
    """The schema of this document."""
    image: str
    site: str
    lines: Sequence[PreflightLine]
    libraries: Sequence[Origin]
    modules: Sequence[Origin]
    """Transports that UCX loads at run time from the directory beside it."""
    launch: LaunchLine
    command: str

    @property
    @in_json()
    def verdict(self) -> Status:
        """The worst of the lines."""
        return max((line.status for line in self.lines), key=_SEVERITY.index)


class PreflightAnswer(NamedTuple):
    """The answer to one question."""

    status: Status
    reason: str
    remedy: str = ""


_ANSWERS = load_yaml(Path(__file__).with_name("answers.yaml"))


def answer(key: str, /, **facts: object) -> PreflightAnswer:
    """Return an answer of ``answers.yaml``, with its facts."""
    (status, reason), *remedy = _ANSWERS[key].items()
    texts = (text.format(**facts) for text in (reason, *(text for _, text in remedy)))
    return PreflightAnswer(Status(status), *texts)
