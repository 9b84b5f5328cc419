# SPDX-License-Identifier: MIT
"""Compile one of our programs, or take it from the user's cache.

$ python -m busbar.check.build mpic++ -O2 memory.cpp -o memory

The cache key covers the preprocessed source, with every macro of the headers and the compiler, and
the commands that the compiler would run (``-###``). A cached program is stored with its SHA-256,
and compiled again if damaged. Nothing is cached in a directory that another user can change.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from busbar.boundary import refuse_shared, replace_file
from busbar.errors import BusbarError
from busbar.plain import stdout

MOST_BYTES = 64 << 20
"""Maximum size of the cache; the least recently used programs are removed first."""
_DIGEST = sha256().digest_size


def main(command: Sequence[str]) -> int:
    """Produce the program of a compile command; return the command's exit status."""
    target, kept = Path(command[command.index("-o") + 1]), None
    try:
        kept = _directory() / _key(command, target)
        if _taken(kept, target):
            return 0
    except BusbarError as error:
        stdout().line(f"busbar: compiled programs are not cached: {error}")
    except (OSError, subprocess.CalledProcessError):  # disk full, or an unknown kind of compiler
        kept = None
    status = subprocess.run(command, check=False).returncode
    if kept and not status:
        with suppress(OSError):  # the program is built; only the copy for the next run is missing
            program = target.read_bytes()
            replace_file(kept, sha256(program).digest() + program)
            _remove_oldest(kept.parent)
    return status


def _directory() -> Path:
    """Return the cache directory; raise ``BusbarError`` if others can change it."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = cache if cache.startswith("/") else Path(os.environ.get("HOME") or "/", ".cache")
    directory = Path(base, "busbar", "programs")
    umask = os.umask(0o077)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(umask)
    return refuse_shared(directory, "XDG_CACHE_HOME")


def _key(command: Sequence[str], target: Path) -> str:
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory, "text")
        environment = {**os.environ, "TMPDIR": directory}
        preprocess = [text if word == str(target) else word for word in (*command, "-E", "-dD")]
        subprocess.run(preprocess, capture_output=True, check=True, env=environment)
        planned = subprocess.run(
            [*command, "-###"], capture_output=True, text=True, check=True, env=environment
        )
        plan = re.sub(rf"{re.escape(directory)}/[\w.-]+", "", planned.stdout + planned.stderr)
        if not re.search("^ ", plan, re.MULTILINE):
            raise OSError(0, "does not print its commands")
        run_path = os.environ.get("LD_RUN_PATH")  # for the linker, which the plan does not show
        facts = repr((command, plan.replace(os.getcwd(), "."), run_path))
        return sha256(facts.encode() + text.read_bytes()).hexdigest()


def _taken(kept: Path, target: Path) -> bool:
    """Copy a cached program to the target, unless it is missing or damaged."""
    if not kept.exists():
        return False
    data = kept.read_bytes()
    if sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
        stdout().line(f"busbar: {kept} was damaged; {target} is compiled again")
        return False
    target.write_bytes(data[_DIGEST:])
    target.chmod(0o755)
    os.utime(kept)
    return True


def _remove_oldest(directory: Path) -> None:
    left = MOST_BYTES
    for kept in sorted(directory.iterdir(), key=lambda each: -each.stat().st_mtime):
        left -= kept.stat().st_size
        if left < 0:
            kept.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
