# SPDX-License-Identifier: MIT
"""The part of ReFrame that Busbar uses; ReFrame itself has no types."""

from reframe.core.decorators import simple_test
from reframe.core.pipeline import (
    CompileOnlyRegressionTest,
    RegressionTestPlugin,
    RunOnlyRegressionTest,
)

__all__ = [
    "CompileOnlyRegressionTest",
    "RegressionTestPlugin",
    "RunOnlyRegressionTest",
    "simple_test",
]
