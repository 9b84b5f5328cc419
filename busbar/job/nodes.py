# SPDX-License-Identifier: MIT
"""Run the collector on the nodes of a job, as text that Python reads from standard input."""

from __future__ import annotations

import base64
import subprocess
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from shlex import join
from tempfile import TemporaryFile

from busbar.slurm.hostlist import fold

_MODULES = (
    *("gate", "gate.bounded", "job", "job.node", "job.node.process", "job.node.network"),
    *("job.node.nvml", "job.node.collect"),
)
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
load("busbar", {empty!r})
"""
_START = 'p=$1; shift; [ -x "$p" ] || p=python3; exec "$p" -I -S - "$@"'
"""The Python of this command if the node has it, else the node's."""
_MORE_S = 25.0
_MOST_BYTES = 256 << 20
_MOST_ERROR = 4096
_MOST_AT_ONCE = 64


def program() -> str:
    """Return the collector as one text."""
    lines = [_LOADER.format(empty=_packed(b""))]
    for name in _MODULES:
        path = Path(__file__).parents[1] / name.replace(".", "/")
        text = b"" if path.is_dir() else path.with_suffix(".py").read_bytes()
        lines.append(f"load('busbar.{name}', {_packed(text)!r})\n")
    lines.append('sys.exit(sys.modules["busbar.job.node.collect"].main())\n')
    return "".join(lines)


def _packed(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text, 9)).decode()


def commands_of(job: str, nodes: Sequence[str], shell: Sequence[str]) -> list[list[str]]:
    """Return what starts the collector: a step of a job, a shell on each node, or nothing."""
    if shell:
        return [[*shell, node] for node in nodes]
    if not nodes:
        return [[]]
    step = ["srun", f"--jobid={job}", "--overlap", "--mem=0", "--quiet", "--mpi=none"]
    step += ["--cpu-bind=none", "--input=all", "--kill-on-bad-exit=0", "--wait=5"]
    count = len(nodes)
    return [[*step, f"--nodes={count}", f"--ntasks={count}", f"--nodelist={fold(nodes)}"]]


def observe(
    commands: Sequence[Sequence[str]], options: Sequence[str], seconds: float
) -> tuple[list[str], list[str]]:
    """Run the collector by each command at once; return the lines of samples, and the errors.

    What a node has printed until the deadline counts.
    """
    text, start = program(), ["sh", "-c", _START, "sh", sys.executable, *options]

    def run(command: Sequence[str]) -> tuple[str, str]:
        # ssh joins the words of a command, and the other side splits them again.
        words = [*command, *start] if command[:1] in ([], ["srun"]) else [*command, join(start)]
        with ExitStack() as stack:
            out = stack.enter_context(TemporaryFile())
            errors = stack.enter_context(TemporaryFile())
            source = stack.enter_context(TemporaryFile())
            source.write(text.encode())
            source.seek(0)
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    words,
                    stdin=source,
                    stdout=out,
                    stderr=errors,
                    check=False,
                    timeout=seconds + _MORE_S,
                )
            out.seek(0)
            errors.seek(0)
            said = errors.read(_MOST_ERROR).decode("utf-8", "replace").strip()
            return out.read(_MOST_BYTES).decode("utf-8", "replace"), said

    with ThreadPoolExecutor(min(max(len(commands), 1), _MOST_AT_ONCE)) as pool:
        found = list(pool.map(run, commands))
    lines = [line for output, _ in found for line in output.split("\n") if line[:1] == "{"]
    return lines, [said for _, said in found if said]
