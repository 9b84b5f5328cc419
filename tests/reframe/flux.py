# SPDX-License-Identifier: MIT
"""Stand-ins for the Python bindings of Flux, which come with Flux only.

Without them ReFrame refuses the scheduler.
"""

from __future__ import annotations

from pathlib import Path

_JOB = """\
class FluxExecutor: pass
class JobspecV1:
    @classmethod
    def from_command(cls, **_): return cls()
"""


def flux_bindings(directory: Path) -> Path:
    """Write them, and return the directory for ``PYTHONPATH``."""
    package = directory / "bindings" / "flux"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import job\n")
    (package / "job.py").write_text(_JOB)
    return package.parent
