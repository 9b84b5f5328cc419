# SPDX-License-Identifier: MIT
"""An image on a host, what is asked of preflight, and what it says."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from busbar import cli

from ..files import executable

REAL_LIBRARIES = [
    pytest.mark.run,
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc makes the test libraries"),
]


@dataclass
class Case:
    """One image, one host, one site; ``root`` has ``image``, ``host`` and the tools on PATH."""

    root: Path
    capsys: pytest.CaptureFixture[str]
    site: str = "mi250x-cray"

    def __post_init__(self) -> None:
        self.image, self.host = self.root / "image", self.root / "host"

    def srun(self, *plugins: str) -> None:
        """An srun that lists these interfaces for MPI."""
        listed = "".join(f"\\n\\t{plugin}" for plugin in plugins)
        executable(self.root / "bin/srun", f"printf 'MPI plugin types are...{listed}\\n'")

    def words(self, *more: str) -> list[str]:
        host = ["--site", self.site, "--host-root", str(self.host)]
        return ["preflight", str(self.image), *host, "--program", "/usr/bin/app", *more]

    def run(self, *more: str) -> dict[str, Any]:
        """The report of ``busbar preflight --json``, its exit status among it."""
        status = cli.main(self.words("--json", *more))
        report: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        report["status"] = status
        report["by_name"] = {line["name"]: line for line in report["lines"]}
        return report

    def ready(self) -> dict[str, Any]:
        """The report; preflight finds nothing."""
        report = self.run()
        assert report["verdict"] == "ready", report["lines"]
        assert report["status"] == 0
        return report

    def finds(self, line: str, status: str, words: str, *more: str) -> None:
        """Preflight ends with this status, and the line says why."""
        report = self.run(*more)
        found = report["by_name"][line]
        assert found["status"] == status, found
        assert words in found["reason"]
        assert report["verdict"] in (status, "broken")
        assert report["status"] == 1
