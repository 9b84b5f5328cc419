# SPDX-License-Identifier: MIT
"""Draw what a command prints of a recorded run, as the pictures of the README."""

from __future__ import annotations

import io
import os
import shlex
from contextlib import redirect_stdout
from unittest import mock

from rich.console import Console
from rich.text import Text

from busbar import cli

PICTURES = {
    "explain.svg": "busbar explain tests/data/h20-roce/all_reduce_2x8_before.log",
    "expect.svg": "busbar expect --site mi250x",
    "gpu.svg": "busbar explain --site h200x4 busbar/demo/half-links.log.gz",
    "sweep.svg": "busbar sweep analyse busbar/demo/sweep-64.jsonl --limit 50",
}
"""File in ``docs/pictures`` -> command, run in the checkout."""
_WIDTH = 110


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def picture(command: str) -> str:
    """Return an SVG of a terminal in which the command has run."""
    shown = _Tty()
    surroundings = {"COLUMNS": str(_WIDTH), "TERM": "xterm-256color"}
    with redirect_stdout(shown), mock.patch.dict(os.environ, surroundings):
        os.environ.pop("NO_COLOR", None)
        cli.main(shlex.split(command)[1:])
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), color_system="truecolor")
    console.print(f"$ {command}", style="bold", highlight=False)
    for line in Text.from_ansi(shown.getvalue()).split():
        line.truncate(_WIDTH, overflow="ellipsis")
        console.print(line)
    return console.export_svg(title="busbar", unique_id="busbar")
