# SPDX-License-Identifier: MIT
"""What a command answered, for tests that call commands as a user does."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest

from busbar.cli import main


@dataclass(frozen=True)
class Said:
    """Exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What a command printed with --json."""
        return json.loads(self.out)

    @property
    def last(self) -> str:
        """The last line of standard error."""
        return self.err.splitlines()[-1]


@dataclass(frozen=True)
class Command:
    """The fixture ``busbar``: ``busbar("site show --json", path)``."""

    printed: pytest.CaptureFixture[str]

    def __call__(self, line: str, *more: object) -> Said:
        """Call a command: the words of a line, and more of them, which can have spaces."""
        self.printed.readouterr()
        try:
            status = main([*shlex.split(line), *map(str, more)])
        except SystemExit as end:
            status = int(end.code or 0)
        return Said(status, *self.printed.readouterr())

    def refuses(self, words: str, line: str, *more: object) -> Said:
        """Call a command that must end with status 2 and such an error, of one line in all."""
        said = self(line, *more)
        assert (said.status, words in said.last) == (2, True), said
        assert not re.search(r"Traceback|internal error|pydantic", said.err)
        return said


def ran(*words: object, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program, for tests of what only a process of its own shows; return what it printed."""
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)
