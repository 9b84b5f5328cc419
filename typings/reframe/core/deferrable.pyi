# SPDX-License-Identifier: MIT
from typing import Any

class Deferred:
    """An expression that ReFrame evaluates when it needs the value."""

    def evaluate(self) -> Any: ...
