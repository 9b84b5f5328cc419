# SPDX-License-Identifier: MIT
"""Compiles a program of ours, or takes it from what this user has compiled before.

$ python -m busbar.check.build mpic++ -O2 memory.cpp -o memory

The key of a program is what decides on it: the sources, and all that the compiler says it would do
(``-###``), with the compilers themselves. With each program is kept which headers and libraries
went into it. Program, headers and libraries must still have their SHA-256, or it is compiled
again. Nothing is kept in a directory that another user can change.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from busbar.boundary import refuse_shared
from busbar.errors import BusbarError
from busbar.plain import stderr, stdout

MOST_BYTES = 64 << 20
"""What all programs may take; those that were not used for the longest time go first."""
_PROGRAM, _INPUTS, _UNFINISHED = "program", "inputs.json", ".new-"
_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_RUN_PATH")
"""What a compiler also reads, and does not say."""
_FILE = re.compile(r"/[^\s()]+")


def main(command: Sequence[str]) -> int:
    """Leave the program that the command makes; return the exit status of the command."""
    try:
        kept = _directory()
        key = _key(command)
    except BusbarError as error:
        stdout().line(f"busbar: compiled programs are not kept: {error}")
        return subprocess.run(command, check=False).returncode
    except (OSError, subprocess.CalledProcessError):  # no room, or a compiler of another kind
        return subprocess.run(command, check=False).returncode
    entry, target = kept / key, Path(command[command.index("-o") + 1])
    if entry.is_dir():
        if _taken(entry, target):
            return 0
        stdout().line(
            f"busbar: {entry} was damaged, or its headers and libraries have changed;"
            f" {target} is compiled again"
        )
        shutil.rmtree(entry, ignore_errors=True)
    return _compile(command, entry, target)


def _directory() -> Path:
    """Return where programs are kept; raise ``BusbarError`` if others can change them."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = cache if cache.startswith("/") else Path(os.environ.get("HOME") or "/", ".cache")
    directory = Path(base, "busbar", "programs")
    umask = os.umask(0o077)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(umask)
    return refuse_shared(directory, "XDG_CACHE_HOME")


def _key(command: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as directory:
        planned = subprocess.run(
            [*command, "-###"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TMPDIR": directory},
        )
        plan = re.sub(rf"{re.escape(directory)}/[\w.-]+", "", planned.stdout + planned.stderr)
    started = [shlex.split(line)[0] for line in plan.splitlines() if line.startswith(" ")]
    if not started:
        raise OSError(0, "does not say what it would do")
    compilers = filter(None, map(shutil.which, [command[0], *started]))
    sources = sorted((*Path().glob("*.cpp"), *Path().glob("*.hpp")))
    facts = {
        "command": command,
        "plan": plan.replace(os.getcwd(), "."),
        "variables": [os.environ.get(name) for name in _VARIABLES],
        "files": _digests(map(str, (*compilers, *sources))),
    }
    return sha256(json.dumps(facts).encode()).hexdigest()


def _digests(paths: Iterable[str]) -> dict[str, str]:
    return {path: sha256(Path(path).read_bytes()).hexdigest() for path in paths}


def _taken(entry: Path, target: Path) -> bool:
    """Copy the program to the target, if it and what went into it are what they were."""
    try:
        inputs = json.loads((entry / _INPUTS).read_text())
        program = (entry / _PROGRAM).read_bytes()
        digest = inputs.pop(_PROGRAM)
        if sha256(program).hexdigest() != digest or _digests(inputs) != inputs:
            return False
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False
    target.write_bytes(program)
    target.chmod(0o755)
    os.utime(entry)
    return True


def _compile(command: Sequence[str], entry: Path, target: Path) -> int:
    """Compile, and keep the program, unless the compiler does not say what went into it."""
    headers = Path(f"{target}.d")
    told = [*command, "-MD", "-MF", str(headers), "-Wl,-t"]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    if done.returncode:
        return subprocess.run(command, check=False).returncode
    stderr().line(done.stderr.rstrip("\n"))
    with suppress(OSError, shutil.Error):
        named = headers.read_text().replace("\\\n", " ").partition(":")[2].split()
        linked = _FILE.findall(done.stdout)
        inputs = _digests(path for path in dict.fromkeys((*named, *linked)) if Path(path).exists())
        new = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=entry.parent))
        shutil.copyfile(target, new / _PROGRAM)
        inputs[_PROGRAM] = _digests([str(target)])[str(target)]
        (new / _INPUTS).write_text(json.dumps(inputs))
        try:
            new.rename(entry)
        except OSError:  # another run was faster
            shutil.rmtree(new)
        _remove_oldest(entry.parent)
    return 0


def _remove_oldest(directory: Path) -> None:
    left = MOST_BYTES
    for entry in sorted(directory.iterdir(), key=lambda each: -each.stat().st_mtime):
        left -= sum(file.stat().st_size for file in entry.iterdir())
        if left < 0:
            shutil.rmtree(entry, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
