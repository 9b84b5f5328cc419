# SPDX-License-Identifier: MIT
"""The processes of a job on this node, their state in the kernel, and PyTorch's recorder."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

from busbar.engine.documents import Collective, last_collectives, load
from busbar.gate.bounded import Task
from busbar.parse.numbers import whole

_CPU_SHARE = 0.1
"""CPU time that a probe may use, as a share of its deadline."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
NEEDS = {"RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_STEP_ID"}
"""A batch script has SLURM_PROCID as well; others use RANK for something else."""
SETTINGS = re.compile(
    r"(?:NCCL|RCCL|UCX|FI|OMPI_MCA_(?:btl|pml|mtl))(?:_\w{1,60})?"
    r"|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING"
)
SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL", re.IGNORECASE)
LIBRARIES = re.compile(r"lib(?:mpi|nccl|rccl|cuda|ucp|fabric|amdhip64)\b")
SHARED = "/dev/shm/"  # noqa: S108 - nothing is written there
_MOST_FILES = 32
_MOST_JOINTS = 64
WRITES, READS = 1, 2
"""The ends of a pipe."""
ANY_RANK = "ranks"
"""The name of a job for all ranks of this user."""


def text_in(path: str, most: int = 1 << 16) -> str:
    """Return the beginning of a file; empty if it is missing or unreadable."""
    with suppress(OSError), open(path, "rb") as file:  # ended, or of another user
        return file.read(most).decode("utf-8", "replace")
    return ""


def namespace(pid: int) -> str:
    """Return the network namespace of a process; empty if it has ended or is of another user."""
    with suppress(OSError):  # ended, or of another user
        return os.readlink(f"/proc/{pid}/ns/net")
    return ""


def words_of(path: str) -> dict[str, str]:
    """Return the words of a file of lines such as ``VmRSS: 12 kB`` or ``nr_throttled 3``."""
    rows = (line.split()[:2] for line in text_in(path).split("\n"))
    return {row[0].rstrip(":"): row[1] for row in rows if len(row) > 1}


def probe(items: Iterable[Any], work: Callable[[Any], Any], seconds: float = 1.0) -> Task[Any]:
    """Call ``work`` for each item in a child that may hang: of maps, file systems, drivers.

    It stops before the first item for which no CPU time is left.
    """
    cpu_s = _CPU_SHARE * seconds

    def run(emit: Callable[[Any], None]) -> None:
        for item in items:
            if time.process_time() > cpu_s:
                raise RuntimeError(f"stopped after {cpu_s:.2g} s of CPU time")
            with suppress(Exception):  # it has ended, or may not be read: not seen
                emit((item, work(item)))

    return Task(run, seconds)


def stat_of(pid: int) -> tuple[str, str, int, int, int, float, int] | None:
    """Return name, state, parent, ticks, major faults, start in s and last CPU of a process."""
    name, _, rest = text_in(f"/proc/{pid}/stat").rpartition(") ")
    words = rest.split()
    if len(words) < 37:
        return None
    ticks, started = int(words[11]) + int(words[12]), int(words[19]) * TICK_S
    head = (name.partition("(")[2][:60], words[0], int(words[1]))
    return (*head, ticks, int(words[9]), started, int(words[36]))


def everything() -> dict[int, tuple[str, str, int, int, int, float, int]]:
    """Return all processes that `/proc` shows."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: row for pid in pids if (row := stat_of(pid))}


def environment(pid: int) -> dict[str, Any]:
    """Return who a process is by its environment: rank, job, step and known settings."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = file.read(1 << 20).decode("utf-8", "replace").split("\0")
    known = dict(pair.split("=", 1) for pair in pairs if "=" in pair)

    def first(names: tuple[str, ...]) -> int | None:
        usable = (whole(known.get(n, "")) for n in names if NEEDS.get(n, n) in known)
        return next((each for each in usable if each is not None), None)

    cache = known.get("XDG_CACHE_HOME") or f"{known.get('HOME', '')}/.cache"
    dumps = (known.get(f"TORCH_{name}_TEMP_FILE") for name in ("FR_DUMP", "NCCL_DEBUG_INFO"))
    dump = next(filter(None, dumps), f"{cache}/torch/comm_lib_trace_rank_")
    names = [n for n in sorted(known) if SETTINGS.fullmatch(n) and not SECRET.search(n)]
    numbers = {"rank": first(RANKS), "local_rank": first(LOCAL), "world": first(WORLD)}
    return numbers | {
        "pipe": known.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", ""),
        "dump": f"{dump}{numbers['rank']}",
        "job": known.get("SLURM_JOB_ID", ""),
        "step": known.get("SLURM_STEP_ID", "")[:40],
        "ras": known.get("NCCL_RAS_ADDR", "")[:100],
        "settings": {name: known[name][:200] for name in names[:64]},
    }


def members(job: str, roots: Iterable[int], table: dict[int, Any]) -> Task[Any]:
    """Ask the processes of a job, or those below ``roots``, who they are; not this one."""
    mine, pid = set(), os.getpid()
    while pid in table:
        mine.add(pid)
        pid = table[pid][2]
    found = set(roots) & set(table)
    more = set(found)
    while more:
        more = {pid for pid in table if table[pid][2] in more} - found
        found |= more

    def who(pid: int) -> dict[str, Any] | None:
        known = environment(pid)
        if pid in found or (job == ANY_RANK and known["rank"] is not None):
            return known
        return known if job and known["job"] == job else None

    daemons = {pid for pid in table if table[pid][0] in ("slurmstepd", "slurmd", "srun")}
    return probe(sorted((set(table) if job else found) - mine - daemons), who, 3.0)


def counters(pid: int, most_threads: int) -> dict[str, Any]:
    """Return ns run and waited by thread, bytes moved, quotas of CPU time, and its status."""
    threads = {}
    with suppress(OSError):  # ended
        for tid in os.listdir(f"/proc/{pid}/task")[:most_threads]:
            words = text_in(f"/proc/{pid}/task/{tid}/schedstat", 64).split()
            threads[tid] = (int(words[0]), int(words[1])) if len(words) > 1 else (0, 0)
    io = words_of(f"/proc/{pid}/io")
    moved = [int(io.get(key, 0)) for key in ("rchar", "wchar", "read_bytes", "write_bytes")]
    status = words_of(f"/proc/{pid}/status")
    return {"threads": threads, "moved": moved, "quotas": quotas(pid), "status": status}


def quotas(pid: int) -> dict[str, tuple[float, float, int]]:
    """Return the cgroups above a process that limit CPU time: CPUs, period, periods cut."""
    found = {}
    for line in text_in(f"/proc/{pid}/cgroup", 8192).splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        tops = ("/cpu", f"/{controllers}") if controllers else ("/unified", "")
        top = next((t for t in tops if os.path.exists(f"/sys/fs/cgroup{t}/cgroup.procs")), "")
        while path.strip("/") and "/.." not in path:  # which leaves the tree
            place = f"/sys/fs/cgroup{top}{path}"
            text = text_in(f"{place}/cpu.max", 64) or text_in(f"{place}/cpu.cfs_quota_us", 64)
            words = f"{text} {text_in(f'{place}/cpu.cfs_period_us', 64)}".split()
            if len(words) > 1 and (whole(words[0]) or 0) > 0:
                cut = int(words_of(f"{place}/cpu.stat").get("nr_throttled", 0))
                found[place[:300]] = (int(words[0]) / int(words[1]), int(words[1]) / 1e6, cut)
            path = os.path.dirname(path)
    return found


def descriptors(pid: int) -> tuple[list[str], bool, list[tuple[str, str]], dict[str, int]]:
    """Return sockets, whether it uses a GPU, files open for writing, and ends of pipes."""
    sockets: list[str] = []
    files: list[tuple[str, str]] = []
    ends: dict[str, int] = {}
    gpu, piped = False, "pipe" in text_in(f"/proc/{pid}/wchan")
    for name in os.listdir(f"/proc/{pid}/fd")[:2048]:
        with suppress(OSError):  # closed since
            place = f"/proc/{pid}/fd/{name}"
            target = os.readlink(place)
            ways = os.lstat(place).st_mode >> 7 & (READS | WRITES)
            gpu |= target.startswith(("/dev/nvidia", "/dev/kfd"))
            file = target[:1] == "/" and not target.startswith(("/dev/", "/proc/", "/sys/"))
            if target.startswith("socket:["):
                sockets.append(target[8:-1])
            elif file and len(files) < _MOST_FILES and ways & WRITES:
                files.append((place, target[:300]))
            # A file system may hang: which files are FIFOs matters only for who waits for a pipe.
            fifo = file and (not piped or stat.S_ISFIFO(os.stat(place).st_mode))
            if fifo or target.startswith("pipe:["):
                ends[target[:300]] = ends.get(target[:300], 0) | ways
    return sockets, gpu, files, ends


def joints(
    ends: dict[int, tuple[list[str], bool, Any, dict[str, int]]], unix: dict[str, str]
) -> dict[int, dict[str, int]]:
    """Return the pipes, FIFOs and UNIX sockets that join processes: which ends each one has.

    ``ends``: the `descriptors` of each process. ``unix``: a name for both ends of a connection.
    """
    both = READS | WRITES
    rows = {p: w | {unix[s]: both for s in own if s in unix} for p, (own, *_, w) in ends.items()}
    held = Counter(name for row in rows.values() for name in row)
    shared = {pid: [name for name in row if held[name] > 1] for pid, row in rows.items()}
    return {pid: {n: rows[pid][n] for n in names[:_MOST_JOINTS]} for pid, names in shared.items()}


def maps_of(pid: int) -> dict[str, list[str]]:
    """Return libraries of communication and segments of shared memory that are mapped."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        paths = {line[73:].strip() for line in file if "/" in line}
    libraries = [p[:300] for p in sorted(paths) if LIBRARIES.match(p.rpartition("/")[2])]
    shared = [p[len(SHARED) :][:80] for p in sorted(paths) if p.startswith(SHARED)]
    return {"libraries": libraries[:32], "shared": shared[:64]}


def space(place: str) -> tuple[int, int, int, int]:
    """Return free and all bytes, free and all files of a file system, for this user."""
    found = os.statvfs(place)
    free = found.f_bavail if os.getuid() else found.f_bfree
    return free * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail, found.f_files


def pages(pid: int) -> dict[str, dict[str, int]]:
    """Return the KiB of a process on each NUMA node."""
    nodes: dict[str, int] = {}
    with open(f"/proc/{pid}/numa_maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            words = dict(word.partition("=")[::2] for word in line.split())
            kib = int(words.get("kernelpagesize_kB", 4))
            for node in (word for word in words if re.fullmatch(r"N\d+", word)):
                nodes[node[1:]] = nodes.get(node[1:], 0) + int(words[node]) * kib
    return {"numa": nodes}


_MOST_BYTES = 16 << 20
_MOST_GROUPS = 64
_POLL_S = 0.1


def _open(pid: int, path: str, flags: int, kind: int) -> int:
    """Open a file as a rank sees it; ``OSError`` if it is another kind, or of another user.

    A device is not even opened: it may start something. Root owns `/proc/PID` of a setuid program,
    to which the other user gave its environment.
    """
    place = f"/proc/{pid}/{'root' if path[:1] == '/' else 'cwd'}/{path}"
    number = os.open(place, os.O_PATH | os.O_NOFOLLOW)
    try:
        found, owner = os.fstat(number), words_of(f"/proc/{pid}/status").get("Uid")
        if stat.S_IFMT(found.st_mode) != kind or str(found.st_uid) != owner:
            raise PermissionError(path)
        return os.open(f"/proc/self/fd/{number}", flags | os.O_NONBLOCK)
    finally:
        os.close(number)


def _content(pid: int, path: str, old: int | None = None) -> tuple[int, bytes]:
    """Return when a file was written, and what it holds if it is newer than ``old``."""
    # The process has ended, or has not written the file.
    with suppress(OSError), os.fdopen(_open(pid, path, os.O_RDONLY, stat.S_IFREG), "rb") as file:
        written = os.fstat(file.fileno()).st_mtime_ns
        return written, b"" if old in (None, written) else file.read(_MOST_BYTES)
    return 0, b""


def dumps(ranks: Iterable[tuple[int, str, str]], seconds: float) -> dict[int, list[Collective]]:
    """Return the last collective of each group of the ranks that dump in time.

    ``ranks``: process, name of its pipe and of its dump. A rank of PyTorch with
    ``TORCH_NCCL_DEBUG_INFO_PIPE_FILE`` dumps what it has recorded when something is written to its
    pipe, and goes on
    (https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html).
    """
    before, found = {}, {}
    for pid, pipe, path in ranks:
        with suppress(OSError):  # ended, or does not listen to its pipe
            written = _content(pid, path)[0]
            with os.fdopen(_open(pid, pipe, os.O_WRONLY, stat.S_IFIFO), "wb", buffering=0) as to:
                to.write(b"1")
            before[pid, path] = written
    stop = time.monotonic() + seconds
    while before and time.monotonic() < stop:
        time.sleep(_POLL_S)
        for (pid, path), old in [*before.items()]:
            data = _content(pid, path, old)[1]
            if data and (document := load(data)):  # else it is still being written
                del before[pid, path]
                rows = islice(last_collectives(document), _MOST_GROUPS)
                found[pid] = [(g[:60], n, what[:40], size, s[:20]) for g, n, what, size, s in rows]
    return found
