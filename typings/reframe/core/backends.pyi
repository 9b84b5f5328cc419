# SPDX-License-Identifier: MIT
from collections.abc import Callable

from reframe.core.launchers import JobLauncher

def getlauncher(name: str) -> type[JobLauncher]: ...
def register_launcher(name: str) -> Callable[[type[JobLauncher]], type[JobLauncher]]: ...
