# SPDX-License-Identifier: MIT
from collections.abc import Sequence
from typing import Any

from reframe.core.environments import ProgEnvironment
from reframe.core.schedulers import JobScheduler

class SystemPartition:
    @property
    def environs(self) -> Sequence[ProgEnvironment]: ...
    @property
    def extras(self) -> dict[str, Any]: ...
    @property
    def features(self) -> Sequence[str]: ...
    @property
    def fullname(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def scheduler(self) -> JobScheduler: ...

class System:
    @property
    def partitions(self) -> Sequence[SystemPartition]: ...
