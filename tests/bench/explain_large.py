# SPDX-License-Identifier: MIT
"""Times ``busbar explain`` on a synthetic NCCL log of 1,024 ranks; prints seconds and memory."""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.explain_any import explain, one_core

RANKS, PER_NODE, CHANNELS = 1024, 8, 32
TARGET_BYTES = 500_000_000
BAR_SECONDS, BAR_MB = 10.0, 300.0


def rank_lines(rank: int) -> Iterator[str]:
    """What one rank prints with NCCL_DEBUG=INFO, in the form of NCCL 2.28."""
    node, local = divmod(rank, PER_NODE)
    say = f"node{node:03d}:{20000 + local}:{30000 + rank} [{local}] NCCL INFO "
    yield say + "NCCL version 2.28.3+cuda13.0"
    yield say + "NCCL_NVLS_ENABLE set by environment to 0."
    yield (
        say
        + "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB"
        " eth0:192.0.2.2<0>"
    )
    yield say + "Using network IB"
    yield (
        say + f"comm 0x5598 rank {rank} nRanks {RANKS} nNodes {RANKS // PER_NODE} localRanks"
        f" {PER_NODE} localRank {local} MNNVL 0"
    )
    if rank == 0:
        order = " ".join(map(str, range(RANKS)))
        for channel in range(CHANNELS):
            yield say + f"Channel {channel:02d}/{CHANNELS} : {order}"
    after = (rank + 1) % RANKS
    for channel in range(CHANNELS):
        yield say + f"Ring {channel:02d} : {rank - 1} -> {rank} -> {after}"
        yield say + f"Tree {channel} : {rank - 1} -> {rank} -> {after}/-1/-1"
        if local == PER_NODE - 1:
            yield (
                say + f"Channel {channel:02d}/0 : {rank}[{local}] -> {after}[0] [send] via"
                f" NET/IB/{channel % 4}/GDRDMA"
            )
        else:
            yield (
                say + f"Channel {channel:02d}/0 : {rank}[{local}] -> {after}[{local + 1}] via"
                f" P2P/CUMEM"
            )
        yield say + f"New proxy send connection {channel} from local rank {local}, transport 0"
    yield (
        say + f"{CHANNELS} coll channels, {CHANNELS} collnet channels, 0 nvls channels, 32 p2p"
        f" channels, 2 p2p channels per peer"
    )
    yield (
        say + f"ncclCommInitRankConfig comm 0x5598 rank {rank} nranks {RANKS} cudaDev {local}"
        f" nvmlDev {local} busId {local}0 commId 0x237d - Init COMPLETE"
    )


def write_log(path: Path) -> None:
    """Ranks of all nodes interleaved, with their operations repeated until the size is reached."""
    with path.open("w", encoding="ascii") as log:
        log.write(
            "# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) warmup"
            " iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
        )
        for group in range(0, RANKS, 64):
            streams = [rank_lines(rank) for rank in range(group, group + 64)]
            for line in itertools.chain.from_iterable(itertools.zip_longest(*streams)):
                if line:
                    log.write(line + "\n")
        written = log.tell()
        one_round = [
            f"node{r // PER_NODE:03d}:{20000 + r % PER_NODE}:{30000 + r} [{r % PER_NODE}] NCCL"
            f" INFO AllReduce: opCount {i:x} sendbuff 0x7f7d5a000000 recvbuff 0x7f7d5a000000"
            f" count 268435456 datatype 7 op 0 root 0 comm 0x5598 [nranks=1024] stream 0x5599"
            for i in range(4)
            for r in range(RANKS)
        ]
        text = "\n".join(one_round) + "\n"
        while written < TARGET_BYTES:
            log.write(text)
            written += len(text)
        log.write(
            "  1073741824     268435456     float     sum      -1    12000   89.48  178.78     "
            " 0    12010   89.40  178.63      0\n# Out of bounds values : 0 OK\n# Avg bus"
            " bandwidth    : 178.7\n"
        )


def main() -> int:
    """Writes the log, explains it in a process of its own, and prints both figures beside the
    bar."""
    one_core()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "nccl-1024.log")
        write_log(path)
        begin = time.monotonic()
        told, seconds, memory = explain(path)
        elapsed = time.monotonic() - begin
        print(  # noqa: T201 - its output
            f"explain: {path.stat().st_size / 1e6:.0f} MB, {told['ranks']} ranks on"
            f" {told['nodes']} nodes:"
            f" {seconds:.1f} s (bar {BAR_SECONDS:g}) in {elapsed:.1f} s, {memory:.0f} MB (bar"
            f" {BAR_MB:g}), {told['verdict']}"
        )
    return 0 if seconds < BAR_SECONDS and memory < BAR_MB else 1


if __name__ == "__main__":
    sys.exit(main())
