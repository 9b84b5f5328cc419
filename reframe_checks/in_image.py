# SPDX-License-Identifier: MIT
"""The launcher of a job whose delivery is an image: what follows it runs inside."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from reframe.core.backends import getlauncher
from reframe.core.launchers import JobLauncher

from busbar.delivery.environment import Image

from .programs import SOURCES


def launcher_outside(host: JobLauncher, image: Image) -> JobLauncher:
    """What starts ranks that enter the image; ``host`` starts those of other deliveries.

    Where preflight says srun, a job of the image has no other: its mpirun is inside.
    """
    if image.preflight.launch.outside[:1] != ("srun",) or host.registered_name == "srun":
        return host
    return getlauncher("srun")()


class InImage(JobLauncher):
    """The host's launcher and what enters the image, or the launcher of the image itself."""

    registered_name = "in-image"

    def __init__(self, host: JobLauncher, image: Image, names: Callable[[], list[str]]) -> None:
        super().__init__()
        self._host = host
        self._image = image
        self._names = names

    def command(self, job: Any) -> list[str]:
        """As preflight says: one of the two launchers is empty."""
        launch = self._image.preflight.launch
        ranks = ["-n", str(job.num_tasks)]
        inside = [*launch.inside[:1], *ranks] if launch.inside else []
        words = [*self._image.entered(self._names(), SOURCES, job.workdir), *inside]
        if launch.outside[:1] == ("srun",):
            return [self._host.run_command(job), *map(shlex.quote, words)]
        outside = [*launch.outside[:1], *ranks] if launch.outside else []
        return list(map(shlex.quote, [*outside, *words]))
