# SPDX-License-Identifier: MIT
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from reframe.core.pipeline import RegressionTest

_Hook = TypeVar("_Hook", bound=Callable[[Any], None])
_Sanity = TypeVar("_Sanity", bound=Callable[[Any], object])
_Test = TypeVar("_Test", bound=RegressionTest)
_Value = TypeVar("_Value")
_Stage = Literal["init", "setup", "compile", "run", "sanity", "performance", "cleanup"]

def run_after(stage: _Stage, *, always_last: bool = False) -> Callable[[_Hook], _Hook]: ...
def run_before(stage: _Stage, *, always_last: bool = False) -> Callable[[_Hook], _Hook]: ...
def sanity_function(function: _Sanity) -> _Sanity: ...

# Each is a descriptor in the class and a plain value in the test.
def fixture(cls: type[_Test], *, scope: str) -> _Test: ...
def parameter(values: Sequence[_Value]) -> _Value: ...
def variable(kind: type[_Value], *, value: _Value, loggable: bool = False) -> _Value: ...
