# SPDX-License-Identifier: MIT
"""Healthy runs with something harmless done to them, which must accuse nobody.

``python -m tests.explain.mutations 100000`` tries so many; the tests beside it try a few.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from busbar.explain import Source, explain
from busbar.tools.nccl_tests import parse as nccl_tests
from tests.files import read_table

from .outputs import load

DATA = Path(__file__).parents[1] / "data"
HARMLESS = (
    "no error",
    "errors: 0",
    "# error 0, warnings 0",
    "Xid errors: none",
    "| Xid | 79 | GPU has fallen off the bus | reboot the node |",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
    "retry count: 7, timeout: 18",
    "NCCL_IB_TIMEOUT 22 NCCL_IB_RETRY_CNT 7",
    "NCCL INFO NET/Plugin: Could not find: libnccl-net.so",
    "NCCL INFO Failed to open libibverbs.so[.1]",
    "misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
    "NCCL INFO NET/IB : No device found.",
    "NCCL INFO Call to connect returned Connection refused, retrying",
    "gpu01:4711 NCCL DIAG [OK]   Xid/SXid: no events requiring immediate attention across 2 hosts",
    "gpu01:4711 NCCL DIAG [OK]   p2p: all 56 directed GPU P2P edges verified",
    "gpu01:4711 NCCL DIAG [OK]   Xid 43 detected 1 time. No user action is required.",
    "max locked memory       (kbytes, -l) unlimited",
    "Volatile Uncorr. ECC : 0",
    "        SRAM Uncorrectable : 0",
    "    Remapping Failure Occurred : No",
    "        GPU Reset Status : Reset Required : No",
    "ibstat: State: Active Physical state: LinkUp",
    "mlx5_core 0000:c1:00.0 ens1np0: Link up",
    "nvidia-fabricmanager.service: active (running)",
    "Fabric Manager version is : 580.95.05",
    'State: {"OOMKilled": false, "ExitCode": 0}',
    "amdgpu 0000:c1:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
    "/dev/shm             63G   12M   63G   1% /dev/shm",
    "kernel.yama.ptrace_scope = 0",
    "Warning: Permanently added '10.0.0.15' (ED25519) to the list of known hosts.",
    "WARNING: there are no other messages",
    "W0308 12:44:08.813375 183991 warmup.cpp:71] first step is slow",
    "Timeout(ms)=1800000",
    "hint: if you see 'unhandled system error', run with NCCL_DEBUG=WARN",
    "0 failed, 12 passed",
    "JobState=COMPLETED Reason=None",
    "Hello from rank 0 of 4",
    "dmesg: no Xid found",
    "UCX_TLS not set",
    "-x HCOLL_MAIN_IB=mlx5_0:1 -x FI_EFA_FORK_SAFE=1",
    "export RDMAV_FORK_SAFE=1",
    "RLIMIT_MEMLOCK unlimited",
    "cilium: VNI 100 is not available for this tunnel",
    "Physical state: Disabled",
    "MemoryError handling is on",
    "open files                      (-n) 1024",
    "max user processes              (-u) 4096",
    "/dev/nvme0n1p2   1.8T  1.7T   12G  99% /scratch",
    "Disk quotas for user me (uid 1000): none",
    "UserWarning: [Errno 28] No space left on device.  joblib will operate in serial mode",
    "step 802: loss 2.1, GPU 71 GB, error 802.5",
    "salloc: Granted job allocation 802",
    "qsub: waiting for job 12.pbs to start",
    "Lustre: scratch-OST0001-osc-ffff: Connection restored to scratch-OST0001",
    "rank 0 of 1: step 1",
    "pyxis: imported docker image: nvcr.io#nvidia/pytorch",
    "fork: 4 workers",
    "Hello, I am process 0 of 4",
    "SLURM_MEM_PER_NODE=1000 oom_score_adj=0",
)
"""Lines that healthy jobs print, with words of faults."""


@cache
def healthy() -> tuple[tuple[str, str, str | None, str | None], ...]:
    """Return name, text, site and engine of each recorded run that accuses nobody."""
    found = []
    for table in sorted(Path(__file__).parent.glob("labels*.yaml")):
        for label in read_table(table):
            if label["verdict"] in ("pass", "unjudged") and "with" not in label:
                data = (DATA / label["file"]).read_bytes()
                if label["file"].endswith(".gz"):
                    data = gzip.decompress(data)
                if label["file"].endswith((".log", ".gz")) and len(data) < 1 << 17:
                    text = data.decode("utf-8", "replace").split("\n", 1)[1]
                    found.append((label["file"], text, label.get("site"), label.get("engine")))
    return tuple(found)


def _insert(lines: list[str], choose: random.Random) -> list[str]:
    for _ in range(choose.randint(1, 5)):
        # Not into a table: the numbers of a row can be cut by any line.
        lines.insert(choose.choice((0, len(lines))), choose.choice(HARMLESS))
    return lines


def _rename_hosts(lines: list[str], choose: random.Random) -> list[str]:
    text = "\n".join(lines)
    for host in set(re.findall(r"^([\w.-]+):\d+:\d+ \[", text, re.MULTILINE)):
        text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", f"gpu-{choose.random()}", text)
    return text.split("\n")


def _prefix(lines: list[str], choose: random.Random) -> list[str]:
    prefix = choose.choice(("3: ", "[1,0]<stdout>: ", "[0] ", "2026-11-21T07:23:34Z "))
    return [prefix + line for line in lines]


def _repeat_info(lines: list[str], choose: random.Random) -> list[str]:
    notes = [line for line in lines if " NCCL INFO " in line]
    return [*choose.sample(notes, min(3, len(notes))), *lines]


def _drop_info(lines: list[str], choose: random.Random) -> list[str]:
    return [line for line in lines if " NCCL INFO NET/" not in line or choose.random() < 0.5]


def _other_addresses(lines: list[str], choose: random.Random) -> list[str]:
    return [re.sub(r"\b10(?:\.\d+){3}\b", f"10.{choose.randrange(256)}.0.7", x) for x in lines]


def _is_row(line: str) -> bool:
    row = nccl_tests.parse_row(line)
    return bool((row and row.in_place) or re.fullmatch(r"\d+ +\d+\.\d+", line))


def _leave_rows_out(lines: list[str], choose: random.Random) -> list[str]:
    """Leave rows out as users do who post a table, and perhaps what follows them."""
    rows = [at for at, line in enumerate(lines) if _is_row(line)]
    if len(rows) < 3:
        return lines
    first = choose.randrange(1, len(rows))
    if choose.random() < 0.5:
        return [*lines[: rows[first]], *choose.choice(([], ["..."], ["[...]", "", "etc."]))]
    out = set(rows[first : choose.randint(first, len(rows))])
    return [line for at, line in enumerate(lines) if at not in out]


def _as_collected(lines: list[str], choose: random.Random) -> list[str]:
    time = "2026-11-21T07:23:34.512345678Z"
    if choose.random() < 0.5:
        return [f"{time} stdout F {line}" for line in lines]
    return [json.dumps({"log": f"{x}\n", "stream": "stdout", "time": time}) for x in lines]


def _as_on_windows(lines: list[str], choose: random.Random) -> list[str]:
    return [line + "\r" for line in lines]


MUTATIONS: tuple[Callable[[list[str], random.Random], list[str]], ...] = (
    _insert,
    _rename_hosts,
    _prefix,
    _repeat_info,
    _drop_info,
    _other_addresses,
    _leave_rows_out,
    _as_on_windows,
    _as_collected,
)


def accusations(numbers: Iterable[int], seed: int) -> Iterator[dict[str, Any]]:
    """Mutate a healthy run for each number and yield those that are accused."""
    for number in numbers:
        choose = random.Random(f"{seed}/{number}")  # noqa: S311
        name, text, site, engine = choose.choice(healthy())
        lines = text.rstrip("\n").split("\n")
        chosen = choose.sample(MUTATIONS, choose.randint(1, 3))
        for mutate in sorted(chosen, key=MUTATIONS.index):
            lines = mutate(lines, choose)
        source = Source.from_text("job.out", "\n".join(lines) + "\n")
        found = explain([source], site=load(site) if site else None, engine=engine)
        causes = [cause.id for run in found for cause in run.causes]
        if causes or any(run.verdict.is_problem for run in found):
            steps = [mutate.__name__ for mutate in chosen]
            yield {"number": number, "file": name, "steps": steps, "causes": causes}


_PART = 1000


def _part(numbers: range, seed: int) -> tuple[range, list[dict[str, Any]]]:
    return numbers, list(accusations(numbers, seed))


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    parts = [range(at, min(at + _PART, args.count)) for at in range(0, args.count, _PART)]
    accused = done = 0
    with multiprocessing.Pool() as pool:
        for part, found in pool.imap_unordered(partial(_part, seed=args.seed), parts):
            done += len(part)
            accused += len(found)
            sys.stdout.writelines(f"{each}\n" for each in found)
            sys.stdout.write(f"{done} of {args.count} mutated healthy runs, {accused} accused\n")
            sys.stdout.flush()
    return int(accused > 0)


if __name__ == "__main__":
    raise SystemExit(_main())
