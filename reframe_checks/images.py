# SPDX-License-Identifier: MIT
"""Jobs whose delivery is an image: what follows their launcher runs inside."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from reframe.core.backends import getlauncher
from reframe.core.builtins import run_after, run_before
from reframe.core.exceptions import ReframeError
from reframe.core.launchers import JobLauncher

from busbar.delivery.environment import Image
from busbar.engine.reading import Cause
from busbar.engine.results import Result
from busbar.explain.containers import SLOW, image_causes
from busbar.preflight.model import Status
from busbar.verdict import Verdict

from .judging import Judgement, JudgingMixin
from .programs import SOURCES


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


class ImageMixin(JudgingMixin):
    """Starts the ranks inside the image of the environment, if it has one."""

    @property
    def image(self) -> Image | None:
        """The image that the check runs in; None for a delivery without."""
        return self.environment.image

    @run_after("setup")
    def set_outcome_of_broken_image(self) -> None:
        """No job is spent on an image of which preflight says that it cannot run."""
        image = self.image
        if self.is_dry_run() or image is None or image.preflight.verdict is not Status.BROKEN:
            return
        results = [
            Result(self.name, Verdict.FAILED, message=line.reason)
            for line in image.preflight.lines
            if line.status is Status.BROKEN
        ]
        self.conclude(Judgement(results, {}))
        raise ReframeError(self.outcome.sentence())

    @run_after("setup")
    def set_launcher_outside(self) -> None:
        """Take the launcher that preflight names, before a check sets options of it.

        Where preflight says srun, a job of the image has no other: its mpirun is inside.
        """
        image = self.image
        outside = image.preflight.launch.outside if image else ()
        if outside[:1] == ("srun",) and self.job.launcher.registered_name != "srun":
            self.job.launcher = getlauncher("srun")()

    @run_before("run")
    def set_launcher_inside(self) -> None:
        """What follows the launcher runs inside; what the check sets wins over the image."""
        if image := self.image:
            self.job.launcher = InImage(self.job.launcher, image, self.names_for_image)
            for name, value in dict(self.env_vars).items():
                self.env_vars |= dict.fromkeys(image.prevailing(name), value)

    def names_for_image(self) -> list[str]:
        """Return the variables that the job's commands need, but for those that the image sets."""
        own = self.image.settings if self.image else {}
        return [*(n for n in self.current_environ.env_vars if n not in own), *self.env_vars]

    def known_causes(self) -> list[Cause]:
        """Return what preflight found."""
        image = self.image
        return list(image_causes(image.preflight.lines)) if image else []

    def results_of_delivery(self) -> list[Result]:
        """Return why preflight calls the image slow, if it does."""
        image = self.image
        if image is None or image.preflight.verdict is not Status.SLOW:
            return []
        return [
            Result(self.name, Verdict.DEGRADED, message=cause.summary)
            for cause in self.known_causes()
            if cause.id == SLOW
        ]
