# SPDX-License-Identifier: MIT
from subprocess import CompletedProcess

def run_command(cmd: str) -> CompletedProcess[str]: ...
