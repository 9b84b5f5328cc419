# SPDX-License-Identifier: MIT
from collections.abc import Callable
from typing import Any

from reframe.core.schedulers import JobScheduler

class SlurmJobScheduler(JobScheduler):
    finished: Callable[[SlurmJobScheduler, Any], bool]
