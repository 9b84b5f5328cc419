# SPDX-License-Identifier: MIT
"""Times ``busbar explain`` on texts of many kinds, on one core; prints MB/s and memory of each.

The time is that of the CPU without the start of the program, since other programs run, too.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TARGET_BYTES = 40_000_000
BAR_MB_PER_S, BAR_MB = 30.0, 200.0

TABLE = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) iters: 20\n"
    "#  Rank  0 Group  0 Pid   1000 on node0 device  0 [0x0f] NVIDIA H200\n"
)
START = (
    '{"event": "start", "program": "gpu_aware", "version": "1.0", "backend": "cuda", "ranks": 2,'
    ' "asked_ranks": 2}\n'
)
LINES: dict[str, tuple[str, Callable[[int], str]]] = {
    "training log": (
        "",
        lambda i: f"2026-11-21 07:23:34,5 INFO step {i} loss 0.5 GPU mem 71 GB\n",
    ),
    "channels that differ": (
        TABLE,
        lambda i: (
            f"node{i % 128}:{20000 + i % 8}:{30000 + i % 1024} [{i % 8}] NCCL INFO Channel"
            f" {i % 64:02}/0 : {i // 64}[{i % 8}] -> {i // 64 + 1}[0] [send] via NET/IB/{i % 4}\n"
        ),
    ),
    "warnings that differ": (
        TABLE,
        lambda i: (
            f"node{i % 128}:{20000 + i % 8}:{30000 + i % 1024} [{i % 8}] net_ib.cc:9 NCCL"
            f" WARN NET/IB : Got completion from peer 192.0.2.1<{i}> with status=12 opcode=0\n"
        ),
    ),
    "prefixes that differ": (
        "",
        lambda i: (
            f"host{i}:{i}:{i} [{i % 8}] NCCL INFO comm 0x5598 rank {i % 8} nRanks 8 nNodes\n"
        ),
    ),
    "hosts that differ": (
        "",
        lambda i: (
            f"host{i}:{i}:{i} [0] NCCL INFO Bootstrap : Using eth0:10.{i % 256}.{i % 251}.9<0>\n"
        ),
    ),
    "errors that differ": (
        "",
        lambda i: f"srun: error: host{i}: task {i}: Exited with exit code {i % 255 + 1}\n",
    ),
    "full disks": (
        "",
        lambda i: f"OSError: [Errno 28] No space left on device: '/scratch/{i}/x'\n",
    ),
    "colours": (
        "",
        lambda i: f"\x1b[32mn1:1:{i % 64}\x1b[0m [0] NCCL INFO Channel {i % 64:02}/0 via SHM\n",
    ),
    "lines that end in CR": ("", lambda i: f"2026-11-21 07:23:34 INFO step {i} loss 0.5\r\n"),
    "prefixes of a collector": (
        "",
        lambda i: f"[pod/w-{i}/x] 2026-11-21T07:23:34.{i:06}Z some words that a program prints\n",
    ),
    "rows": (
        TABLE,
        lambda i: (
            f"  {1 << (i % 28 + 3):10}  {1 << (i % 28 + 1):12}     float     sum      -1    4512.3"
            f"  237.96  {356.9 + i % 10 / 100:.2f}      0    4510.1  238.08  357.12      0\n"
        ),
    ),
    "JSON lines": (
        START,
        lambda i: (
            '{"event": "reading", "metric": "bandwidth", "from": 0, "to": 1, "buffers": "D D",'
            f' "bytes": {1 << i % 30}, "gb_per_s": {100 + i % 7}.5, "wrong": 0}}\n'
        ),
    ),
    "tables of one rank": (
        "",
        lambda i: (
            f"{TABLE}       8             2     float     sum      -1    {12 + i % 9}.3    0.00"
            f"    0.00      0    12.1    0.00    0.00      0\n# Out of bounds values : 0 OK\n"
            f"# Avg bus bandwidth    : 0.00{i % 7}\n#\n"
        ),
    ),
    "long tables of one rank": (
        "",
        lambda i: (
            TABLE
            + "".join(
                f"  {1 << k:10}  {1 << (k - 2):12}     float     sum      -1    {9 + k + i % 10}.3"
                "    0.00    0.00      0    12.1    0.00    0.00      0\n"
                for k in range(3, 28)
            )
        ),
    ),
    "broken events": (START, lambda i: f'{{"event": "strange", "x": {i}}}\n'),
    "asynchronous events": (
        TABLE,
        lambda i: (
            f"node{i % 128}:{i % 8}:{i} [{i % 8}] NCCL WARN NET/IB : mlx5_{i % 8}:{i} async fatal"
            f" event on QP 0x{i * 7:x}: local QP catastrophic error\n"
        ),
    ),
    "OSU rows": (
        "# OSU MPI-CUDA Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n",
        lambda i: f"{1 << i % 23:<10} {285000.11 + i % 1000:>20.2f}\n",
    ),
    "JSON of others": (
        "",
        lambda i: f'{{"level": "info", "step": {i}, "loss": 0.1, "text": "x"}}\n',
    ),
    "log of Docker": (
        "",
        lambda i: (
            f'{{"log":"n1:1:{i % 64} [0] NCCL INFO Channel {i % 64:02}/0 : 0[0] via SHM\\n",'
            f'"stream":"stdout","time":"2026-11-21T07:23:34.{i:09}Z"}}\n'
        ),
    ),
    "commands": ("", lambda i: f"mpirun -np {i % 64 + 1} ./all_reduce_perf -b 8 -e {i}\n"),
    "exports": ("", lambda i: f"export VAR_{i}=value{i}\n"),
    "mixed errors": (
        "",
        lambda i: (
            f"srun: error: host{i}: task {i}: Exited with exit code 1\n",
            f"OSError: [Errno 28] No space left on device: '/scratch/{i}'\n",
            f"RuntimeError: NCCL error in: file{i}.cpp, unhandled system error\n",
            f"UCX  ERROR ibv_create_qp(mlx5_{i}) failed: Cannot allocate memory\n",
        )[i % 4],
    ),
    "OSU banners": (
        "",
        lambda i: (
            f"# OSU MPI-CUDA Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n{i % 20} 285.1\n"
        ),
    ),
    "long lines": ("", lambda i: "GPU float words " * 40_000 + "\n"),
    "one line": ("", lambda i: "some words " * 100_000),
    "newlines": ("", lambda i: "\n" * 1_000_000),
    "one character": ("", lambda i: "a\n" * 500_000),
}


def pieces(head: str, line: Callable[[int], str]) -> Iterator[bytes]:
    """Yield a text of the target size."""
    yield head.encode()
    written, at = 0, 0
    while written < TARGET_BYTES:
        text = "".join(line(at + i) for i in range(1 if len(line(at)) > 10_000 else 10_000))
        at += 10_000
        written += len(text)
        yield text.encode()


def random_text() -> Iterator[bytes]:
    """Yield letters without words."""
    choice = random.Random(1)  # noqa: S311 - repeatable
    block = bytes(choice.choices(b"abcdefghijklmnopqrstuvwxyz     0123456789.:/[]\n", k=1 << 20))
    for _ in range(TARGET_BYTES >> 20):
        yield block


def explain(path: Path) -> tuple[Any, float, float]:
    """Explain a file on one core: the document, seconds of the CPU and megabytes.

    A document is printed also for text in which nothing is recognised.
    """
    command = [sys.executable, "-m", "busbar", "explain", "--json", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        printed = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return json.loads(printed or b"{}"), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def measure(name: str, text: Iterator[bytes], scratch: Path, start: float) -> bool:
    """Explain a text in a process of its own; return whether it meets the bar.

    ``start`` is the CPU time in which such a process starts.
    """
    path = scratch / "text"
    with path.open("wb") as file:
        file.writelines(text)
    begin = time.monotonic()
    document, cpu, memory = explain(path)
    seconds = time.monotonic() - begin
    speed = path.stat().st_size / 1e6 / max(cpu - start, 0.01)
    documents = document if isinstance(document, list) else [document]
    good = speed >= BAR_MB_PER_S and memory <= BAR_MB and all("schema" in d for d in documents)
    print(  # noqa: T201 - its output
        f"explain: {name:24} {speed:6.0f} MB/s (bar {BAR_MB_PER_S:g}), {seconds:5.1f} s,"
        f" {memory:4.0f} MB (bar {BAR_MB:g}){'' if good else '  MISSED'}"
    )
    return good


def one_core() -> None:
    """Leave this process, and those that it starts, one core."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])


def main() -> int:
    """Measure each kind of text."""
    one_core()
    with tempfile.TemporaryDirectory() as scratch:
        head = Path(scratch) / "line"
        head.write_text(TABLE)
        _, start, _ = explain(head)
        results = [
            measure(name, pieces(head, line), Path(scratch), start)
            for name, (head, line) in LINES.items()
        ]
        results.append(measure("letters without words", random_text(), Path(scratch), start))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
