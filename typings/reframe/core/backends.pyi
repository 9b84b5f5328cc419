# SPDX-License-Identifier: MIT
from reframe.core.launchers import JobLauncher

def getlauncher(name: str) -> type[JobLauncher]: ...
