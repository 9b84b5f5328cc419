# SPDX-License-Identifier: MIT
"""Run the collector on the nodes of a job, as text that Python reads from standard input."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shlex import join

from busbar.slurm.steps import srun

_MODULES = "gate gate.bounded job job.node"
_MODULES += " job.node.process job.node.network job.node.nvml job.node.collect"
_LOADER = """\
import base64, sys, types, zlib
def load(name, text):
    module = types.ModuleType(name)
    module.__path__ = []
    sys.modules[name] = module
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
    commands: Sequence[Sequence[str]],
    seconds: float,
    *,
    job: str = "",
    pids: Sequence[int] = (),
    stacks: bool = False,
) -> tuple[list[str], list[str]]:
    """Run the collector by each command at once; return lines of JSON, and last lines of errors.

    What a node has printed until the deadline counts.
    """
    asked = json.dumps({"job": job, "pids": pids, "stacks": stacks, "seconds": seconds})
    text, start = program().encode(), ["sh", "-c", _START, "sh", sys.executable, asked]

    def run(command: Sequence[str]) -> tuple[bytes, bytes]:
        # ssh joins the words of a command, and the other side splits them again.
        plain = command[:1] in ([], ["srun"])
        words, limit = [*command, *(start if plain else [join(start)])], seconds + _MORE_S
        try:
            done = subprocess.run(
                words, input=text, capture_output=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired as late:
            return late.stdout or b"", b"no answer in %d s from " % limit + str(words[0]).encode()
        except OSError as error:
            return b"", f"{words[0]}: {error.strerror}".encode()
        return done.stdout, done.stderr

    with ThreadPoolExecutor(min(len(commands), _MOST_AT_ONCE)) as pool:
        found = [(out.decode("utf-8", "replace"), err) for out, err in pool.map(run, commands)]
    errors = [err.decode("utf-8", "replace").strip().split("\n")[-1] for _, err in found]
    lines = [line for out, _ in found for line in out.split("\n") if line[:1] == "{"]
    return lines, [each[:300] for each in errors if each]
