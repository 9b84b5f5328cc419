# SPDX-License-Identifier: MIT
"""``busbar demo``: run the other commands on recorded faults."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from busbar.boundary import output_directory, replace_file
from busbar.data import busbar
from busbar.errors import BusbarError, file_error
from busbar.terminal import stdout
from busbar.verdict import EXIT_UNJUDGED

_VERDICTS = (1, EXIT_UNJUDGED)
_DEMO = Path(__file__).parents[1] / "demo"


def demo(args: argparse.Namespace) -> int:
    """Show what the commands print for recorded faults.

    Runs explain, sweep, history and report on recordings that ship with Busbar, in 20 s and
    without hardware, and writes HTML pages. States for each recording what was measured and what
    was simulated.

    Exit status: 0 done, 2 a command failed.

    Examples:

        busbar demo
        busbar demo --output /tmp/demo
    """
    place = output_directory(args.output, "--output")
    with file_error("cannot be written", place, "choose another --output"):
        shutil.copytree(_DEMO, place / "recordings", dirs_exist_ok=True)
    screen = stdout()
    for story in yaml.safe_load((_DEMO / "stories.yaml").read_text(encoding="utf-8")):
        for line in ("", f"== {story['title']}", f"recording: {story['recorded']}"):
            screen.line(line)
        for words in story["commands"]:
            screen.line("")
            screen.line(f"$ busbar {words}")
            sys.stdout.flush()
            with file_error("cannot be written", place, "choose another --output"):
                _run(words, place)
    screen.line("")
    screen.line(f"pages: {place / 'pages' / 'index.html'}; to repeat a command: cd {place}")
    return 0


def _run(line: str, place: Path) -> None:
    """Run a command as a user would, with its own history."""
    words, _, target = line.partition(" > ")
    done = subprocess.run(
        busbar(*words.split()),
        cwd=place,
        env={**os.environ, "BUSBAR_HISTORY": str(place / "history")},
        stdout=subprocess.PIPE if target else None,
        text=True,
        check=False,
    )
    if done.returncode not in (0, *_VERDICTS):
        raise BusbarError(f"busbar {line} exited with status {done.returncode}", hint="see above")
    if target:
        replace_file(place / target, done.stdout)
