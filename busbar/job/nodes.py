# SPDX-License-Identifier: MIT
"""Run the collector on the nodes of a job, as text that Python reads from standard input."""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import join
from subprocess import CompletedProcess

from busbar.job.node.collect import documents
from busbar.parse.tables import beside
from busbar.program import call
from busbar.slurm.steps import srun

_PROGRAM = "busbar.job.node.collect"
_IMPORT = re.compile(r"(?m)^from (?P<module>busbar[.\w]*) import (?P<names>\([^)]*\)|.*)")
_ROOT = Path(__file__).parents[2]
_LOADER = beside(__file__)["loader"]
_START = 'p=$1; shift; [ -x "$p" ] || p=python3; exec "$p" -I -S - "$@"'
"""This command's Python if the node has it, otherwise the node's."""
_MORE_S = 25.0
_MOST_AT_ONCE = 64


def program() -> str:
    """Return the collector as one text, with the modules that it imports."""
    texts: dict[str, bytes] = {}
    _add(_PROGRAM, texts)
    rows = {
        name: base64.b64encode(zlib.compress(text, 9)).decode() for name, text in texts.items()
    }
    loads = "".join(f"load({name!r}, {row!r})\n" for name, row in rows.items())
    return f"{_LOADER}{loads}sys.modules[{_PROGRAM!r}].main()\n"


def _file(module: str) -> Path:
    return (_ROOT / module.replace(".", "/")).with_suffix(".py")


def _add(name: str, texts: dict[str, bytes]) -> None:
    """Add a module after those that it needs; packages are empty."""
    if name in texts or not name:
        return
    _add(name.rpartition(".")[0], texts)
    path = _file(name)
    text = path.read_bytes() if path.exists() else b""
    for package, names in _IMPORT.findall(text.decode()):
        for module in (f"{package}.{each}" for each in re.findall(r"\w+", names)):
            _add(module if _file(module).exists() else package, texts)
    texts[name] = text


def commands_of(
    job: str, component: str, nodes: Sequence[str], shell: Sequence[str]
) -> list[list[str]]:
    """Return the prefix that starts the collector: a job step, a shell on each node, or empty.

    ``component``: the offset in a heterogeneous job; may be empty.
    """
    if shell or not nodes:
        return [[*shell, node] for node in nodes] or [[]]
    options = ["--quiet", "--mpi=none", "--cpu-bind=none", "--input=all"]
    options += [f"--het-group={component}"] * bool(component)
    return [[*srun(nodes), f"--jobid={job}", *options]]


def observe(
    commands: Sequence[Sequence[str]], seconds: float, **asked: object
) -> tuple[list[str], list[str]]:
    """Run the collector by each command at once; return JSON documents, and last lines of errors.

    ``asked``: ``job`` or ``pids`` to look at, and whether for ``stacks`` and by ``recorder``. What
    a node has printed until the deadline counts.
    """
    default = {"job": "", "pids": [], "stacks": False, "recorder": False, "seconds": seconds}
    text, start = program(), ["sh", "-c", _START, "sh", sys.executable]
    start.append(json.dumps(default | asked))

    def run(command: Sequence[str]) -> CompletedProcess[str]:
        # ssh joins the words of a command, and the other side splits them again.
        plain = not command or command[0] == "srun"
        words = [*command, *(start if plain else [join(start)])]
        return call(words, seconds + _MORE_S, given=text)

    with ThreadPoolExecutor(min(len(commands), _MOST_AT_ONCE)) as pool:
        done = list(pool.map(run, commands))
    errors = [each.stderr.strip().split("\n")[-1][:300] for each in done]
    found = [document for each in done for document in documents(each.stdout)]
    return found, list(filter(None, errors))
