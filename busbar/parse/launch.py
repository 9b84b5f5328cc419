# SPDX-License-Identifier: MIT
"""Error messages of Open MPI, MPICH, PMIx and Slurm, and command lines in a log."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from busbar.parse.messages import Pattern, pattern

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

OPENMPI: tuple[Pattern, ...] = (
    pattern(
        "mpi.no-components",
        "No components were able to be opened in the",
        r"No components were able to be opened in the (?P<framework>\w+) framework",
    ),
    pattern(
        "mpi.no-components",
        "No available pml components",
        r"No available (?P<framework>pml) components",
    ),
    pattern("mpi.pml-refused", "PML ", r"PML (?P<component>\w+) cannot be selected"),
    pattern(
        "mpi.pml-in-use",
        "pml",
        r"(?:select: component|selected) (?P<component>ucx|ob1|cm) (?:selected|best)",
    ),
    pattern(
        "died",
        " noticed that process rank ",
        r"(?:prterun|mpirun|mpiexec|orterun) noticed that process rank (?P<rank>\d{1,18})"
        r" with PID (?P<pid>\d{1,18}) on node (?P<node>\S+) exited",
    ),
    pattern("died.signal", "signal ", r"\bsignal (?P<number>\d{1,18}) \((?P<name>[^)]+)\)\."),
    pattern(
        "died.signal",
        "Caught signal",
        r"Caught signal (?P<number>\d{1,18}) \((?P<name>[^)]+)\)",
    ),
    pattern("died.exit", "non-zero status", r"(?P<text>exited with non-zero status.*)"),
    pattern(
        "died.abort", "MPI_ABORT was invoked", r"MPI_ABORT was invoked on rank (?P<rank>\d{1,18})"
    ),
    pattern(
        "died.daemon",
        "lost communication with",
        r"(?P<text>lost communication with a remote daemon.*)",
    ),
    pattern("died.bad-termination", "BAD TERMINATION", r"BAD TERMINATION OF ONE OF YOUR"),
    *(pattern("frame", f"({name}", rf"\((?P<function>{name}\w*)") for name in _FRAMES),
    pattern(
        "timeout",
        "time limit for job execution",
        r"(?P<text>user-provided time limit for job execution has been reached.*)",
    ),
    # ReFrame, of a local job.
    pattern("timeout", "job timed out", r"(?P<text>job timed out \(.*?\))"),
    pattern(
        "timeout",
        "Watchdog caught collective",
        r"(?P<text>Watchdog caught collective operation timeout.*)",
    ),
    pattern(
        "bound",
        " bound to ",
        r"[Rr]ank (?P<rank>\d{1,18}) (?:is )?bound to (?P<places>.*\S)",
    ),
    # srun --cpu-bind=verbose.
    pattern(
        "bound.mask",
        "cpu-bind",
        r"cpu-bind\S* ?- (?P<host>\S+), task +(?P<task>\d{1,18}) .*:"
        r" mask (?P<mask>0x[0-9a-fA-F]+)",
    ),
)
PMIX: tuple[Pattern, ...] = (
    pattern("pmix", "OMPI was not built with SLURM", r"(?P<text>OMPI was not built with SLURM.*)"),
    pattern("pmix", "unsupported PMI version", r"(?P<text>unsupported PMI version.*)"),
    pattern("pmix", "PMIX ERROR", r"(?P<text>PMIX ERROR: \S+.*)"),
    pattern("pmix", "PMIx_Init failed", r"(?P<text>PMIx_Init failed.*)"),
    pattern("pmix", "PMI2_Init failed", r"(?P<text>PMI2?_Init failed.*)"),
    pattern("pmix", "PMI_Init", r"(?P<text>PMI_Init\S* (?:failed|returned).*)"),
    pattern("pmix", "PMI_Get_", r"(?P<text>PMI_Get_\w+ \[pmix_s\d\.c:.*(?:failed|error).*)"),
    pattern("pmix", "OPAL ERROR", r"(?P<text>OPAL ERROR: \S+.*(?:pmix|ext\dx_client|pmi)\S*.*)"),
    pattern("pmix", "version mismatch", r"(?P<text>(?:PMIx|PMI).{0,80}version mismatch.*)"),
    pattern("pmix", "Couldn't ", r"(?P<text>srun: error: Couldn't (?:load|find) .*mpi.*)"),
    pattern("pmix", "Invalid MPI type", r"(?P<text>Invalid MPI type '[^']*'.*)"),
)
MPICH: tuple[Pattern, ...] = (
    pattern(
        "mpich.gpu-off",
        "GPU_SUPPORT_ENABLED",
        r"MPICH_GPU_SUPPORT_ENABLED\s*[=:]\s*0\b",
    ),
    pattern("mpich.gpu-off", "MPIR_CVAR_ENABLE_GPU", r"MPIR_CVAR_ENABLE_GPU\s*[=:]\s*0\b"),
    pattern(
        "mpich.bad-address",
        "Bad address",
        r"(?P<text>(?:process_vm_(?:read|write)v|CMA|cma|xpmem|write|read|send).*Bad address)",
    ),
    pattern("died.mpich", "MPICH ERROR", r"(?P<text>MPICH ERROR \[Rank \d{1,18}\].*- Abort.*)"),
    pattern("died.mpich", "Fatal error in ", r"(?P<text>Fatal error in \w+.*)"),
)
SLURM: tuple[Pattern, ...] = (
    pattern(
        "timeout",
        "DUE TO TIME LIMIT",
        r"\*\*\* (?P<text>(?:STEP|JOB) \S+.*CANCELLED AT \S+ DUE TO TIME LIMIT)",
    ),
    # scontrol --oneliner show job.
    pattern("timeout", "JobState=TIMEOUT", r"^(?P<text>JobId=\d+.* JobState=TIMEOUT)"),
    pattern("died.node", "JobState=NODE_FAIL", r"^(?P<text>JobId=\d+.* JobState=NODE_FAIL)"),
    pattern("died.cancelled", "JobState=CANCELLED", r"^(?P<text>JobId=\d+.* JobState=CANCELLED)"),
    pattern(
        "died.oom", "JobState=OUT_OF_MEMORY", r"^(?P<text>JobId=\d+.* JobState=OUT_OF_MEMORY)"
    ),
    pattern(
        "died.node",
        "DUE TO NODE FAILURE",
        r"\*\*\* (?P<text>(?:STEP|JOB) \S+.*CANCELLED AT \S+ DUE TO NODE FAILURE)",
    ),
    pattern(
        "died.cancelled",
        "CANCELLED AT",
        r"\*\*\* (?P<text>(?:STEP|JOB) \S+.*CANCELLED AT \S+) \*\*\*",
    ),
    pattern(
        "died.task",
        "srun: error:",
        r"srun: error: (?P<node>\S+): tasks? (?P<tasks>\S+): (?P<text>.*\S)",
    ),
    pattern("died.oom", "oom", r"(?P<text>[Dd]etected \d+ oom[-_]kill event.*|Out Of Memory.*)"),
    pattern("slurm.error", "slurmstepd: error:", r"slurmstepd: error: (?P<text>.*\S)"),
)
ALL = OPENMPI + PMIX + MPICH + SLURM

_EXIT = re.compile(
    r"^\s*(?:exit[_ ]?(?:status|code)|rc)\s*[=:]\s*(?P<code>-?\d+)\s*$", re.IGNORECASE
)
_EXPORT = re.compile(r"^(?:\$ |\+ )?export (?P<name>[A-Za-z_]\w*)=(?P<value>\S*)")
_TRACED = re.compile(r"^(?:\$|\++) (?P<command>.*\S)")
_PROGRAM = re.compile(
    r"(?:^|/)(?P<program>osu_\w+|\w+_perf|gpu_aware|nccl_message_transfer|torch_collectives(?:\.py)?)$"
)
_MPIRUN = ("mpirun", "mpiexec", "prterun", "srun", "orterun")


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
    return int(status["code"]) if status else None


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
        elif word in ("-n", "-np", "--np", "--ntasks") and following.isdigit():
            ranks = int(following)
        elif word == "--mca" and following == "pml":
            environment["OMPI_MCA_pml"] = after
    return environment, ranks
