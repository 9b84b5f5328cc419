# SPDX-License-Identifier: MIT
"""ReFrame in a separate process, which imports modules before its arguments are known.

The imports take as long as examining the machine, which determines the arguments.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from busbar.check.places import Order
from busbar.check.surroundings import environment_of_jobs
from busbar.data import PYTHON
from busbar.errors import BusbarError

if TYPE_CHECKING:
    from busbar.check.listing import Match

_END_S = 10


class ReFrame:
    """A process that waits for arguments, loads the checks, and waits for the order to run."""

    def __init__(self) -> None:
        if not find_spec("reframe"):
            raise ModuleNotFoundError(name="reframe")
        self._process = subprocess.Popen(
            (*PYTHON, "busbar.check.reframe_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            env={**environment_of_jobs(), "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._lines: list[str] = []

    def load(self, arguments: Sequence[str]) -> list[Match]:
        """Load the checks; return all of them, by name.

        Raises ``BusbarError`` with ReFrame's message if a check file cannot be loaded.
        """
        # Imported while the process loads ReFrame.
        from pydantic import TypeAdapter  # noqa: PLC0415

        from busbar.check.listing import CHOSEN, MATCHES, Match  # noqa: PLC0415

        self._write(json.dumps([*arguments, "-t", CHOSEN]))
        for line in self._output:
            if line.startswith(MATCHES):
                matches = TypeAdapter(list[Match]).validate_json(line.removeprefix(MATCHES))
                return sorted(matches, key=lambda match: match.name)
            self._lines.append(line)
        errors = [line.strip() for line in self._lines if "ERROR" in line]
        what = errors[0] if errors else "".join(self._lines).strip()[-400:]
        where, hint = " ".join(["reframe", *arguments]), "run this command by hand for details"
        raise BusbarError(what, where=where, hint=hint)

    def run(self, order: Order) -> Iterator[str]:
        """Run the ordered checks; yield all lines that ReFrame prints."""
        self._write(json.dumps(asdict(order)))
        yield from self._lines
        yield from self._output
        self._process.wait()

    @property
    def killed_by(self) -> str:
        """The signal that ended the process; may be empty."""
        status = self._process.returncode
        return signal.Signals(-status).name if status and status < 0 else ""

    def _write(self, line: str) -> None:
        try:
            self._input.write(line + "\n")
            self._input.flush()
        except BrokenPipeError:
            pass  # ReFrame has failed; its output shows the reason

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process; it cancels the jobs of running checks."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
