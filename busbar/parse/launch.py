# SPDX-License-Identifier: MIT
"""Open MPI with PRRTE, MPICH and Cray MPICH, PMIx, Slurm: what they say when a job goes wrong."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from busbar.parse.messages import Pattern, pattern

OPENMPI: tuple[Pattern, ...] = (
    pattern(
        "mpi.no-components",
        "No components were able to be opened in the",
        r"No components were able to be opened in the (\w+) framework",
    ),
    pattern("mpi.no-components", "No available pml components", r"No available (pml) components"),
    pattern("mpi.pml-refused", "PML ", r"PML (\w+) cannot be selected"),
    pattern(
        "mpi.pml-in-use", "pml", r"(?:select: component|selected) (ucx|ob1|cm) (?:selected|best)"
    ),
    pattern(
        "died",
        " noticed that process rank ",
        r"(?:prterun|mpirun|mpiexec|orterun) noticed that process rank (\d{1,18}) with PID"
        r" (\d{1,18}) on"
        r" node"
        r" (\S+) exited",
    ),
    pattern("died.signal", "signal ", r"\bsignal (\d{1,18}) \(([^)]+)\)\."),
    pattern(
        "died.signal",
        "Caught signal",
        r"Caught signal (\d{1,18}) \(([^:)]+)(?:: ([^)]*))?\)",
    ),
    pattern("died.exit", "non-zero status", r"(exited with non-zero status.*)"),
    pattern("died.abort", "MPI_ABORT was invoked", r"MPI_ABORT was invoked on rank (\d{1,18})"),
    pattern(
        "died.daemon", "lost communication with", r"(lost communication with a remote daemon.*)"
    ),
    pattern("died.bad-termination", "BAD TERMINATION", r"BAD TERMINATION OF ONE OF YOUR"),
    pattern(
        "loader",
        "error while loading shared libraries",
        r"error while loading shared libraries: (\S+: .*\S)",
    ),
    pattern("launch", "PRTE ERROR", r"(PRTE ERROR: .*\S)"),
    pattern("launch", "not enough slots", r"(There are not enough slots available.*)"),
    pattern(
        "launch", "was unable to find", r"(\w+ was unable to find the specified executable.*)"
    ),
    pattern("launch", "Unable to create step", r"(srun: error: Unable to create step.*)"),
    pattern("launch", "Unable to allocate resources", r"(srun: error: Unable to allocate.*)"),
    pattern("launch", "command not found", r"(\S+: command not found)"),
    pattern("frame", "(mca_pml_ob1_", r"\((mca_pml_ob1_\w+)"),
    pattern("frame", "(mca_btl_", r"\((mca_btl_\w+)"),
    pattern("frame", "(ompi_coll_", r"\((ompi_coll_\w+)"),
    pattern("frame", "(ompi_datatype_sndrcv", r"\((ompi_datatype_sndrcv)"),
    pattern("frame", "(ompi_op_", r"\((ompi_op_\w+)"),
    pattern("frame", "(mca_coll_", r"\((mca_coll_\w+)"),
    pattern("frame", "(PMPI_", r"\((PMPI_\w+)"),
    pattern("frame", "(MPIR_", r"\((MPIR_\w+)"),
    pattern("frame", "(MPID", r"\((MPID\w+)"),
    pattern(
        "timeout",
        "time limit for job execution",
        r"(user-provided time limit for job execution has been reached.*)",
    ),
    # ReFrame, of a local job.
    pattern("timeout", "job timed out", r"(job timed out \(.*?\))"),
    pattern(
        "timeout",
        "Watchdog caught collective",
        r"(Watchdog caught collective operation timeout.*)",
    ),
    pattern(
        "bound",
        " bound to ",
        r"[Rr]ank (\d{1,18}) (?:is )?bound to (.*\S)",
    ),
    # srun --cpu-bind=verbose.
    pattern(
        "bound.mask",
        "cpu-bind",
        r"cpu-bind\S* ?- (\S+), task +(\d{1,18}) .*: mask (0x[0-9a-fA-F]+)",
    ),
)
PMIX: tuple[Pattern, ...] = (
    pattern("pmix", "OMPI was not built with SLURM", r"(OMPI was not built with SLURM.*)"),
    pattern("pmix", "unsupported PMI version", r"(unsupported PMI version.*)"),
    pattern("pmix", "PMIX ERROR", r"(PMIX ERROR: \S+.*)"),
    pattern("pmix", "PMIx_Init failed", r"(PMIx_Init failed.*)"),
    pattern("pmix", "PMI2_Init failed", r"(PMI2?_Init failed.*)"),
    pattern("pmix", "PMI_Init", r"(PMI_Init\S* (?:failed|returned).*)"),
    pattern("pmix", "PMI_Get_", r"(PMI_Get_\w+ \[pmix_s\d\.c:.*(?:failed|error).*)"),
    pattern("pmix", "OPAL ERROR", r"(OPAL ERROR: \S+.*(?:pmix|ext\dx_client|pmi)\S*.*)"),
    pattern("pmix", "version mismatch", r"((?:PMIx|PMI).{0,80}version mismatch.*)"),
    pattern("pmix", "Couldn't ", r"(srun: error: Couldn't (?:load|find) .*mpi.*)"),
    pattern("pmix", "Invalid MPI type", r"(Invalid MPI type '[^']*'.*)"),
)
MPICH: tuple[Pattern, ...] = (
    pattern(
        "mpich.gtl",
        "GTL library is not linked",
        r"(GPU_SUPPORT_ENABLED is requested, but GTL library is not linked)",
    ),
    pattern(
        "mpich.gtl-missing", "libmpi_gtl_", r"(libmpi_gtl_\w+\.so\S*): cannot open shared object"
    ),
    pattern(
        "mpich.gpu-off",
        "GPU_SUPPORT_ENABLED",
        r"MPICH_GPU_SUPPORT_ENABLED\s*[=:]\s*(0)\b",
    ),
    pattern("mpich.gpu-off", "MPIR_CVAR_ENABLE_GPU", r"MPIR_CVAR_ENABLE_GPU\s*[=:]\s*(0)\b"),
    pattern(
        "mpich.bad-address",
        "Bad address",
        r"((?:process_vm_readv|process_vm_writev|CMA|cma|xpmem|write|read|send).*Bad address)",
    ),
    pattern("died.mpich", "MPICH ERROR", r"MPICH ERROR \[Rank (\d{1,18})\].*- (Abort.*)"),
    pattern("died.mpich", "Fatal error in ", r"(Fatal error in \w+.*)"),
)
SLURM: tuple[Pattern, ...] = (
    pattern(
        "timeout",
        "DUE TO TIME LIMIT",
        r"\*\*\* (?:STEP|JOB) (\S+).*CANCELLED AT (\S+) DUE TO TIME LIMIT",
    ),
    # scontrol --oneliner show job.
    pattern("timeout", "JobState=TIMEOUT", r"^JobId=(\d+).* JobState=(TIMEOUT)"),
    pattern("died.node", "JobState=NODE_FAIL", r"^JobId=(\d+).* JobState=(NODE_FAIL)"),
    pattern("died.cancelled", "JobState=CANCELLED", r"^JobId=(\d+).* JobState=(CANCELLED)"),
    pattern("died.oom", "JobState=OUT_OF_MEMORY", r"^JobId=\d+.* JobState=(OUT_OF_MEMORY)"),
    pattern(
        "died.node",
        "DUE TO NODE FAILURE",
        r"\*\*\* (?:STEP|JOB) (\S+).*CANCELLED AT (\S+) DUE TO NODE FAILURE",
    ),
    pattern(
        "died.cancelled", "CANCELLED AT", r"\*\*\* (?:STEP|JOB) (\S+).*CANCELLED AT (\S+) \*\*\*"
    ),
    pattern("died.task", "srun: error:", r"srun: error: (\S+): tasks? (\S+): (.*\S)"),
    pattern("died.oom", "oom", r"([Dd]etected \d+ oom[-_]kill event.*|Out Of Memory.*)"),
    pattern("slurm.error", "slurmstepd: error:", r"slurmstepd: error: (.*\S)"),
)
# What CUDA, HIP, PyTorch, the loader, NVML and Apptainer say of a driver that is missing or old.
DRIVER: tuple[Pattern, ...] = (
    pattern(
        "gpu.driver", "driver version is insufficient", r"(CUDA driver version is insufficient.*)"
    ),
    pattern("gpu.driver", "-capable device", r"(no (?:CUDA|ROCm)-capable device is detected)"),
    pattern("gpu.driver", "Found no NVIDIA driver", r"(Found no NVIDIA driver on your system)"),
    pattern("gpu.driver", "libcuda.so", r"(libcuda\.so\S*): cannot open shared object file"),
    pattern("gpu.driver", "library version mismatch", r"(Driver/library version mismatch)"),
    pattern("gpu.driver", "find any nv files", r"(Could not find any nv files on this host)"),
)
ALL = OPENMPI + PMIX + MPICH + SLURM + DRIVER

_EXIT = re.compile(r"^\s*(?:exit[_ ]?(?:status|code)|rc)\s*[=:]\s*(-?\d+)\s*$", re.IGNORECASE)
_EXPORT = re.compile(r"^(?:\$ |\+ )?export ([A-Za-z_]\w*)=(\S*)")
_TRACED = re.compile(r"^(?:\$|\++) (.*\S)")
_PROGRAM = re.compile(
    r"(?:^|/)(osu_\w+|\w+_perf|gpu_aware|nccl_message_transfer|torch_collectives(?:\.py)?)$"
)
_MPIRUN = ("mpirun", "mpiexec", "prterun", "srun", "orterun")


@dataclass(frozen=True)
class CommandLine:
    """A launch that the shell traced (``set -x``) or a log quotes."""

    program: str
    """``osu_bw``, ``all_reduce_perf``; empty when it is none that we know."""
    ranks: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """What follows the program."""


def parse_exit_status(line: str) -> int | None:
    """``exit_status=124``: what a job script prints of its step."""
    match = _EXIT.match(line)
    return int(match[1]) if match else None


def parse_export(line: str) -> tuple[str, str] | None:
    """``$ export NAME=value``."""
    match = _EXPORT.match(line)
    return (match[1], match[2]) if match else None


def parse_command(line: str) -> CommandLine | None:
    """A traced command line that launches something; None for other lines."""
    match = _TRACED.match(line)
    if not match:
        return None
    try:
        words = shlex.split(match[1])
    except ValueError:
        return None  # a quote that does not close: not a command line
    program, at = "", len(words)
    for index, word in enumerate(words):
        if found := _PROGRAM.search(word):
            program, at = found[1], index
            break
    if not program and not any(w.rsplit("/", 1)[-1] in _MPIRUN for w in words[:4]):
        return None
    environment, ranks = _options(words[:at])
    return CommandLine(program, ranks, environment, tuple(words[at + 1 :]))


def _options(words: list[str]) -> tuple[dict[str, str], int | None]:
    """Variables and number of ranks that the words before the program give."""
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
