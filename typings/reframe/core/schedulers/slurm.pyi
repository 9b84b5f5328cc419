# SPDX-License-Identifier: MIT
from collections.abc import Callable, Iterable
from typing import Any

from reframe.core.schedulers import JobScheduler

class SlurmJobScheduler(JobScheduler):
    finished: Callable[[SlurmJobScheduler, Any], bool]
    _cancel_if_blocked: Callable[
        [SlurmJobScheduler, Iterable[Any], dict[str, list[str]] | None], None
    ]
    def cancel(self, job: Any) -> None: ...

def slurm_state_pending(state: str | None) -> bool: ...
