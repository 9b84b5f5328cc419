# SPDX-License-Identifier: MIT
"""What the user chooses: the lane, the delivery, a prefix or an image."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from busbar.boundary import refuse_unsafe, refuse_unsafe_reference
from busbar.errors import require_known
from busbar.site.delivery import Lane

DEFAULT_LANE = "ucx-1.14"
LANES = (DEFAULT_LANE, "ucx-current")
DELIVERY_ORDER = ("prefix", "wheels", "spack", "modules", "image")


@dataclass(frozen=True)
class Choice:
    """The options of ``busbar check``, or the ``BUSBAR_*`` variables of plain ReFrame."""

    lane: str = DEFAULT_LANE
    prefix: Path | None = None
    """A directory with installed benchmarks."""
    delivery: str | None = None
    """A kind of delivery; None takes the first available one."""
    declared: bool = False
    """Trust the deliveries in site.yaml without a probe, to list checks on another machine."""
    image: str | None = None
    """A SIF, a sandbox, or a name in the store of Docker or Podman, to run the checks in."""
    inject: tuple[str, ...] = ()
    """Library directories of the host that take precedence over the image's own."""
    access: tuple[str, ...] = ()
    """Options of sbatch in addition to those of the site."""
    allocation: int = 0
    """Nodes of the allocation of Slurm to run in; 0 submits jobs."""
    sweep: bool = False
    """Jobs on different nodes run at once."""

    def __post_init__(self) -> None:
        """Refuse unknown lanes, and names that job scripts or bind mounts would misread."""
        require_known("unknown lane", self.lane, get_args(Lane), "--lane")
        if self.prefix:
            refuse_unsafe(self.prefix, "--prefix")
        for directory in self.inject:
            refuse_unsafe(directory, "--inject")
        if self.image and (self.image[0] in "./" or Path(self.image).exists()):
            refuse_unsafe(Path(self.image).absolute(), "--image")
        elif self.image:
            refuse_unsafe_reference(self.image, "--image")

    @classmethod
    def from_variables(cls) -> Choice:
        """Read the choice of a user of plain ReFrame; ``busbar check`` sets none of these."""
        prefix = os.environ.get("BUSBAR_PREFIX")
        inject = os.environ.get("BUSBAR_INJECT")
        return cls(
            lane=os.environ.get("BUSBAR_LANE") or DEFAULT_LANE,
            prefix=Path(prefix).absolute() if prefix else None,
            delivery=os.environ.get("BUSBAR_DELIVERY") or None,
            declared=bool(os.environ.get("BUSBAR_DECLARED")),
            image=os.environ.get("BUSBAR_IMAGE") or None,
            inject=tuple(inject.split(":")) if inject else (),
        )
