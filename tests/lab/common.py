# SPDX-License-Identifier: MIT
"""Where the lab is, what runs a command in it, and how an image is built for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.said import ran

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "ci" / "lab"

Run = Callable[..., subprocess.CompletedProcess[str]]


def run_build(
    directory: Path, within: Sequence[str] = (), **wishes: str
) -> subprocess.CompletedProcess[str]:
    """Builds an image of the host stack by the delivery wheels, on a Debian made here.

    ``within`` is a command that runs the build with other rights.
    """
    wishes = {"STACK": "host", "DELIVERY": "wheels", "BASE": "local"} | wishes
    environment = os.environ | wishes | {"WORK": str(directory), "PYTHON": sys.executable}
    # The checkout may move on between two builds.
    environment |= {"COMMIT": "0" * 40, "SOURCE_DATE_EPOCH": "1700000000"}
    done = ran(*within, ROOT / "ci" / "images" / "build.sh", env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def build(directory: Path, within: Sequence[str] = (), **wishes: str) -> Path:
    """The file of one image that ``run_build`` has built."""
    return Path(run_build(directory, within, **wishes).stdout.splitlines()[-1])
