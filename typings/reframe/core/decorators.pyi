# SPDX-License-Identifier: MIT
from typing import TypeVar

from reframe.core.pipeline import RegressionTest

_Test = TypeVar("_Test", bound=type[RegressionTest])

def simple_test(cls: _Test) -> _Test: ...
