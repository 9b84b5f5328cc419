# SPDX-License-Identifier: MIT
from typing import Any

from reframe.core.schedulers import JobScheduler

class SystemPartition:
    @property
    def extras(self) -> dict[str, Any]: ...
    @property
    def fullname(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def scheduler(self) -> JobScheduler: ...
