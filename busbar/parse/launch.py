# SPDX-License-Identifier: MIT
"""Error messages of Open MPI, MPICH, PMIx and Slurm, and command lines in a log."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from busbar.parse import numbers
from busbar.parse.messages import pattern, table
from busbar.parse.tables import beside

_TABLES = beside(__file__)
_EXIT, _EXPORT, _TRACED, _PROGRAM = (
    re.compile(_TABLES[name]) for name in ("exit", "export", "traced", "program")
)
TABLE = (
    *table("launch"),
    *table("fatal"),
    *table("rules"),
    # glibc: "lib.so(name+0x1)", gdb: "#3 0x... in name ()", UCX: "2 0x... name()  file".
    *(
        pattern("frame", name, rf"(?:\(|\bin |0x[0-9a-f]+ )(?P<function>{name}\w*)")
        for name in _TABLES["frames"]
    ),
)

_NODES = {name: re.compile(regex) for name, regex in _TABLES["nodes"].items()}
_MPIRUN = ("mpirun", "mpiexec", "mpiexec.hydra", "prterun", "srun", "orterun")
_ASSIGNED = re.compile(r"[A-Z][A-Z0-9_]+=\S*$")
_WRAPPERS = ("time", "sudo", "env", "exec", "nohup", "numactl", "taskset")

TRIGGERS = tuple(_TABLES["triggers"])
"""Texts in the lines that a shell prints, for `busbar.parse.triggers`."""


@dataclass(frozen=True)
class CommandLine:
    """A launch that the shell traced (``set -x``) or a log quotes."""

    program: str
    """``osu_bw``, ``all_reduce_perf``; empty for other programs."""
    ranks: int | None = None
    nodes: int | None = None
    """Nodes that the launcher was asked for, or on which it puts the ranks."""
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """The words after the program."""

    @property
    def bench(self) -> str:
        """Return what the program measures: ``all_reduce`` for ``all_reduce_perf``."""
        return self.program.removesuffix("_perf")

    def option(self, name: str) -> str:
        """Return the word after an option of the program; empty without it."""
        return next((b for a, b in pairwise(self.arguments) if a == name), "")


def parse_exit_status(line: str) -> int | None:
    """Parse ``exit_status=124``, which a job script prints after a step."""
    status = _EXIT.match(line)
    return numbers.count(status["code"]) if status else None


class ShellVariable(NamedTuple):
    """A variable on a separate line."""

    name: str
    value: str
    by_shell: bool
    """Whether the line shows that a shell set it; a library may print its variables, too."""


def parse_export(line: str) -> ShellVariable | None:
    """Parse ``$ export NAME=value``, or ``NAME=value`` for a variable of a library."""
    export = _EXPORT.match(line)
    if not export:
        return None
    name = export["name"] or export["bare"]
    value: str = export["value"] if export["name"] else export["setting"]
    return ShellVariable(name, value.strip("\"'"), bool(export["name"] or export["prompt"]))


def parse_command(line: str) -> CommandLine | None:
    """Parse a command line that launches a program; None for other lines.

    A line without a prompt is one only if it begins as a launch does: ``mpirun -np 2 ...``,
    ``NCCL_DEBUG=INFO ./all_reduce_perf``.
    """
    traced = _TRACED.match(line)
    if not traced or not (traced["prompt"] or _begins_a_launch(traced["command"].split())):
        return None
    try:
        words = shlex.split(traced["command"].rstrip().rstrip("\\"))
    except ValueError:
        return None  # a quote that does not close: not a command line
    program, at = "", len(words)
    for index, word in enumerate(words):
        if known := _PROGRAM.search(word):
            program, at = known["program"], index
            break
    if not program and not any(w.rsplit("/", 1)[-1] in _MPIRUN for w in words[:4]):
        return None
    environment, ranks = _options(words[:at])
    nodes = _nodes(words[:at], ranks)
    return CommandLine(program, ranks, nodes, environment, tuple(words[at + 1 :]))


def _nodes(words: list[str], ranks: int | None) -> int | None:
    """Return how many nodes a launch is for; None if its options do not say."""
    launcher = next((w for w in (w.rsplit("/", 1)[-1] for w in words) if w in _MPIRUN), "")
    options = " ".join(words)
    found = _NODES["srun" if launcher == "srun" else "mpirun"].search(options)
    if not launcher or not found:
        return None
    if count := found["nodes"]:
        return numbers.count(count)
    each = numbers.count(found["each"])
    return -(-ranks // each) if ranks and each else None


def _begins_a_launch(words: list[str]) -> bool:
    """Return whether the words are a launch, and not a sentence."""
    first = next(
        (i for i, w in enumerate(words) if not _ASSIGNED.match(w) and w not in _WRAPPERS), None
    )
    if first is None:
        return False
    following = words[first + 1] if len(words) > first + 1 else "-"
    if words[first].rsplit("/", 1)[-1] in _MPIRUN:
        return following.startswith("-")
    is_program = _PROGRAM.search(words[first]) is not None
    return is_program and (first > 0 or "/" in words[first] or following.startswith("-"))


def _options(words: list[str]) -> tuple[dict[str, str], int | None]:
    """Return the variables and the number of ranks set by the words before the program."""
    environment: dict[str, str] = {}
    ranks = None
    for word, following, after in zip(words, [*words[1:], ""], [*words[2:], "", ""], strict=False):
        listed = word.startswith(("--export=", "--env="))
        # Others are after -x, or before the launcher.
        parts = word.partition("=")[2].split(",") if listed else [word]
        environment |= dict(part.split("=", 1) for part in parts if _ASSIGNED.match(part))
        if word in ("-n", "-np", "--np", "--ntasks") and numbers.is_whole(following):
            ranks = numbers.count(following)
        elif word in ("-mca", "--mca", "--omca", "--gmca"):
            environment[f"OMPI_MCA_{following}"] = after
        elif word in ("-genv", "--genv", "-env", "--env") and "=" not in following:
            environment[following] = after
    return environment, ranks
