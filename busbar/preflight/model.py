# SPDX-License-Identifier: MIT
"""What preflight says: a line for each question, the origin of each library, one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from busbar.site.model import Name, Stack


class Fingerprint(BaseModel):
    """What an image says of itself, as far as it is used; the file holds more."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    stack: Stack
    lane: Name = "image"
    delivery: Name | None = None
    features: list[Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_-]*$")]] = Field(
        default_factory=list
    )
    """As ReFrame allows them."""


class Status(StrEnum):
    """How one line stands, or all of them."""

    READY = "ready"
    SLOW = "slow"
    """It works, on a slower path."""
    BROKEN = "broken"
    """It fails, or does something else than was asked."""


_SEVERITY = (Status.READY, Status.SLOW, Status.BROKEN)


@dataclass(frozen=True)
class Line:
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
    """In the container; empty where the loader finds none."""
    origin: str
    """``image``, ``injected`` (a directory that was bound), ``driver`` (--nv) or ``missing``."""
    sha256: str = ""
    """Of the file: two of one hash are one build."""


@dataclass(frozen=True)
class LaunchLine:
    """A launch line in its parts; the program follows the last."""

    outside: tuple[str, ...]
    """The launcher of the host; empty where the image's own starts the ranks."""
    enter: tuple[str, ...]
    """What runs a command inside the image, one container a call."""
    inside: tuple[str, ...]
    """The launcher inside the image; empty where the host's starts the ranks."""
    mpi_type: str
    """What ``srun --mpi`` gets; empty for another launcher."""


@dataclass(frozen=True)
class PreflightReport:
    """Everything that preflight says of one image on one site."""

    image: str
    site: str
    lines: Sequence[Line]
    libraries: Sequence[Origin]
    modules: Sequence[Origin]
    """Transports that UCX loads by itself, from the directory beside it."""
    launch: LaunchLine
    command: str

    @property
    def verdict(self) -> Status:
        """That of the worst line."""
        return max((line.status for line in self.lines), key=_SEVERITY.index)

    @property
    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self) | {"verdict": self.verdict}


def ready(name: str, reason: str) -> Line:
    """A line with nothing to do."""
    return Line(name, Status.READY, reason)
