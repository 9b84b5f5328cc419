# SPDX-License-Identifier: MIT
from reframe.core.pipeline import RegressionTest

class RegressionCheckLoader:
    def load_all(self, force: bool = False) -> list[RegressionTest]: ...
