# SPDX-License-Identifier: MIT
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reframe.core.pipeline import RegressionTest

def make_test(
    name: str,
    bases: tuple[type, ...],
    body: Mapping[str, Any],
    methods: Sequence[Callable[..., Any]] = (),
    module: str | None = None,
) -> type[RegressionTest]: ...
