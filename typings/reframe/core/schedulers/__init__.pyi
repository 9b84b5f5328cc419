# SPDX-License-Identifier: MIT
from reframe.core.launchers import JobLauncher

class JobScheduler:
    registered_name: str

class Job:
    launcher: JobLauncher
    options: list[str]
    num_tasks: int
    num_tasks_per_node: int
    pin_nodes: list[str]
    max_pending_time: float | None
    submit_time: float
    state: str | None
    @property
    def exitcode(self) -> int | None: ...
    @property
    def nodelist(self) -> list[str] | None: ...
    @property
    def jobid(self) -> str: ...
    @property
    def workdir(self) -> str: ...
