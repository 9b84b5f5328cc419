# SPDX-License-Identifier: MIT
"""Error messages of Open MPI, MPICH, PMIx and Slurm, and command lines in a log."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from busbar.parse import numbers
from busbar.parse.messages import pattern, table

_FRAMES = (
    "mca_pml_ob1_",
    "mca_btl_",
    "mca_coll_",
    "ompi_coll_",
    "ompi_datatype_sndrcv",
    "ompi_op_",
    "PMPI_",
    "MPIR_",
    "MPID",
)
"""How the functions in a backtrace begin that a rule looks for."""

TABLE = (
    *table("launch"),
    *(pattern("frame", f"({name}", rf"\((?P<function>{name}\w*)") for name in _FRAMES),
)

_EXIT = re.compile(
    r"^\s*(?:exit[_ ]?(?:status|code)|rc)\s*[=:]\s*(?P<code>-?\d+)\s*$", re.IGNORECASE
)
_EXPORT = re.compile(r"^(?:\$ |\+ )?export (?P<name>[A-Za-z_]\w*)=(?P<value>\S*)")
_TRACED = re.compile(r"^(?:\$|\++) (?P<command>.*\S)")
_PROGRAM = re.compile(
    r"(?:^|/)(?P<program>osu_\w+|\w+_perf|gpu_aware|nccl_message_transfer|torch_collectives(?:\.py)?)$"
)
_MPIRUN = ("mpirun", "mpiexec", "prterun", "srun", "orterun")

TRIGGERS = (
    r"(?i:(?:exit[_ ]?(?:status|code)|\brc)\s*[=:])",
    r"export [A-Za-z_]",
    r"[$+] .*(?:mpirun|mpiexec|prterun|srun|orterun|osu_|_perf|gpu_aware|nccl_message|torch_coll)",
)
"""Texts in the lines that a shell prints, for `busbar.parse.triggers`."""


@dataclass(frozen=True)
class CommandLine:
    """A launch that the shell traced (``set -x``) or a log quotes."""

    program: str
    """``osu_bw``, ``all_reduce_perf``; empty for other programs."""
    ranks: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """The words after the program."""


def parse_exit_status(line: str) -> int | None:
    """Parse ``exit_status=124``, which a job script prints after a step."""
    status = _EXIT.match(line)
    return numbers.count(status["code"]) if status else None


def parse_export(line: str) -> tuple[str, str] | None:
    """Parse ``$ export NAME=value``."""
    export = _EXPORT.match(line)
    return (export["name"], export["value"]) if export else None


def parse_command(line: str) -> CommandLine | None:
    """Parse a traced command line that launches a program; None for other lines."""
    traced = _TRACED.match(line)
    if not traced:
        return None
    try:
        words = shlex.split(traced["command"])
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
    return CommandLine(program, ranks, environment, tuple(words[at + 1 :]))


def _options(words: list[str]) -> tuple[dict[str, str], int | None]:
    """Return the variables and the number of ranks set by the words before the program."""
    environment: dict[str, str] = {}
    ranks = None
    for word, following, after in zip(words, [*words[1:], ""], [*words[2:], "", ""], strict=False):
        if re.fullmatch(r"[A-Z][A-Z0-9_]+=\S*", word):  # after -x, or before the launcher
            name, _, value = word.partition("=")
            environment[name] = value
        elif word in ("-n", "-np", "--np", "--ntasks") and numbers.is_whole(following):
            ranks = numbers.count(following)
        elif word == "--mca" and following == "pml":
            environment["OMPI_MCA_pml"] = after
    return environment, ranks
