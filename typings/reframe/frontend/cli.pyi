# SPDX-License-Identifier: MIT
from reframe.frontend.loader import RegressionCheckLoader as RegressionCheckLoader

def main() -> None: ...
