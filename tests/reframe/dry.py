# SPDX-License-Identifier: MIT
"""Runs of ReFrame itself on our checks, which leave job scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from busbar.data import CHECKS
from tests.said import ran

ROOT = Path(__file__).resolve().parents[2]


def reframe(
    directory: Path,
    config: Path,
    *options: str,
    checks: Path = CHECKS,
    dry: bool = True,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run it below a directory; ``dry`` leaves the jobs to be read."""
    return ran(
        *(Path(sys.executable).with_name("reframe"), "--nocolor"),
        *(["--dry-run"] if dry else []),
        *("-C", config, "-c", checks, "--prefix", directory, *options),
        env={**os.environ, "BUSBAR_DECLARED": "1", **variables},
    )


def jobs(directory: Path) -> list[Path]:
    """The job scripts that a run left."""
    return sorted(directory.glob("stage/**/rfm_job.sh"))


def without_root(script: Path) -> str:
    """A job script as any checkout has it."""
    # Only where a path begins: a checkout in /src must not be found in reframe_checks/src.
    return re.sub(rf"(?<!\w){re.escape(str(ROOT))}/", "BUSBAR/", script.read_text())
