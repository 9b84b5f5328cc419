# SPDX-License-Identifier: MIT
from reframe.core.pipeline import RegressionTest

class RegressionCheckLoader:
    _external_vars: dict[str, str]
    def load_all(self, force: bool = False) -> list[RegressionTest]: ...
