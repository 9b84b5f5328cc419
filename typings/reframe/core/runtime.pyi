# SPDX-License-Identifier: MIT
from collections.abc import Mapping, Sequence

from reframe.core.environments import ProgEnvironment
from reframe.core.systems import System, SystemPartition

class RuntimeContext:
    @property
    def system(self) -> System: ...

def runtime() -> RuntimeContext: ...
def valid_sysenv_comb(
    valid_systems: Sequence[str], valid_prog_environs: Sequence[str]
) -> Mapping[SystemPartition, Sequence[ProgEnvironment]]: ...
