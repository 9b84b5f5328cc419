# SPDX-License-Identifier: MIT
"""An image on a host, what is asked of preflight, and what it must say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from busbar import cli

REAL_LIBRARIES = [
    pytest.mark.run,
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc makes the test libraries"),
]


@dataclass
class Case:
    """One image, one host, one site."""

    image: Path
    host: Path
    site: str = "mi250x-cray"
    inject: list[str] = field(default_factory=list)

    def run(self, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        """The report of ``busbar preflight --json``, its exit status among it."""
        words = ["preflight", str(self.image), "--site", self.site, "--json"]
        words += ["--host-root", str(self.host), "--program", "/usr/bin/app"]
        for directory in self.inject:
            words += ["--inject", directory]
        status = cli.main(words)
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        report["status"] = status
        report["by_name"] = {line["name"]: line for line in report["lines"]}
        return report


Fault = tuple[Callable[[Case], None], str, str, str]
"""What breaks it, the line that says so, its status, words of its reason."""


def names(cases: list[Fault]) -> list[str]:
    return [case[0].__name__.strip("_") for case in cases]


def assert_line(report: dict[str, Any], line: str, status: str, words: str) -> None:
    found = report["by_name"][line]
    assert found["status"] == status, found
    assert words in found["reason"]
    assert report["verdict"] in (status, "broken")
    assert report["status"] == 1
