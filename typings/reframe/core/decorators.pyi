# SPDX-License-Identifier: MIT
from collections.abc import Mapping
from typing import Any, TypeVar

from reframe.core.pipeline import RegressionTest

_Test = TypeVar("_Test", bound=type[RegressionTest])

def simple_test(cls: _Test) -> _Test: ...

class TestRegistry:
    def add(self, test: type[RegressionTest], *, variant_num: int) -> None: ...
    def instantiate_all(
        self, reset_sysenv: int = 0, external_vars: Mapping[str, Any] | None = None
    ) -> list[RegressionTest]: ...
