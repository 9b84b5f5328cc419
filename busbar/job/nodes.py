# SPDX-License-Identifier: MIT
"""Run the collector on the nodes of a job, as text that Python reads from standard input."""

from __future__ import annotations

import base64
import json
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import join
from subprocess import CompletedProcess

from busbar.job.node.collect import documents
from busbar.program import call
from busbar.slurm.steps import srun

_MODULES = """\
parse parse.numbers parse.cpulist gate gate.bounded gate.sysfs gate.kernel_log
engine engine.documents job job.node job.node.process job.node.network job.node.nvml
job.node.amdgpu job.node.recorder job.node.collect"""
_LOADER = """\
import base64, sys, types, zlib
def load(name, text):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = []
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
    exec(compile(zlib.decompress(base64.b64decode(text)), name, "exec"), module.__dict__)
"""
_START = 'p=$1; shift; [ -x "$p" ] || p=python3; exec "$p" -I -S - "$@"'
"""The Python of this command if the node has it, else the node's."""
_MORE_S = 25.0
_MOST_AT_ONCE = 64


def program() -> str:
    """Return the collector as one text."""
    lines = [_LOADER]
    for name in ("busbar", *(f"busbar.{each}" for each in _MODULES.split())):
        path = Path(__file__).parents[2] / name.replace(".", "/")
        text = b"" if path.is_dir() else path.with_suffix(".py").read_bytes()
        lines.append(f"load({name!r}, {base64.b64encode(zlib.compress(text, 9)).decode()!r})\n")
    return "".join([*lines, "sys.modules['busbar.job.node.collect'].main()\n"])


def commands_of(job: str, nodes: Sequence[str], shell: Sequence[str]) -> list[list[str]]:
    """Return what starts the collector: a step of a job, a shell on each node, or nothing."""
    if shell or not nodes:
        return [[*shell, node] for node in nodes] or [[]]
    options = ("--quiet", "--mpi=none", "--cpu-bind=none", "--input=all")
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
