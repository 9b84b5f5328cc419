# SPDX-License-Identifier: MIT
"""The expectation for an unknown machine: MPI judged by a plain copy of the same run.

Two processes of a node pass bytes through a kernel copy (cross memory attach) or through shared
memory. ``gpu_aware --copy`` measures both without MPI, pair by pair and size by size, next to each
MPI reading, so that what slows the machine slows both.
"""

from __future__ import annotations

from collections.abc import Iterable

from busbar.expect.expectation import Expectation, NoExpectation
from busbar.parse.events import Copy, Event, Flag, Start

# Shares of what the plain copy reaches. Seen with UCX 1.14.1 and 1.22.0 in Open MPI 5.0.11 on a
# 2-core virtual machine, 64 KiB to 16 MiB: 0.87 to 0.97 of the kernel copy through shared memory,
# 0.14 to 0.72 with TCP forced, less than 0.5 up to 1 MiB.
_LOW, _TYPICAL = 0.7, 0.95
# MPICH 4.3.2 on the same machine: 0.44 to 0.56 at 64 KiB, 0.74 and more from 1 MiB; with TCP and
# no shared memory at most 0.2.
_SMALL = 1 << 20
_MPICH_LOW, _MPICH_TYPICAL = 0.42, 0.55
# A copy through a shared segment is two copies, by two cores that work at the same time at best.
_BOUNCE = 0.5
# Half of a message can be copied by each of the two cores.
_CORES = 2
# Ratio of a latency to a flag between two cores: 1.5 to 2.7 through shared memory, 23 to 30
# with TCP. A hypervisor may move the cores of a virtual machine at any time: one pair had flags of
# 0.04 us and, seconds later, of 0.22 us, with latencies of 0.13 and 0.35 us. So the flag is passed
# between the batches of each latency. The fastest flag of a pair, in either direction, sets the
# limit, the slowest one the band.
_FLAG_LEAST, _FLAG_TYPICAL, _FLAG_MOST = 0.5, 2.0, 12.0

COPY = "a plain copy between the same two processes, measured in the same run"


def beside_plain_copies(
    events: Iterable[Event], *, latency: bool, source: int | None, target: int | None, nbytes: int
) -> Expectation:
    """Limit and band for a reading from the plain copies among the ``events`` of its run.

    Raises ``NoExpectation`` if the run has no copy for that pair and size.
    """
    flags: list[float] = []
    copies: dict[str, float] = {}
    mpich = False
    for event in events:
        match event:
            case Start(mpi=mpi):
                mpich = "MPICH" in mpi
            case Flag() if {event.source, event.target} == {source, target}:
                flags.append(event.us)
            case Copy(nbytes=size, gb_per_s=rate) if rate is not None and size == nbytes:
                if (event.source, event.target) == (source, target):
                    copies[event.method] = rate
    if latency and flags:
        least, most = min(flags), max(flags)
        return Expectation(
            limit=least * _FLAG_LEAST,
            low=least * _FLAG_LEAST,
            typical=most * _FLAG_TYPICAL,
            high=most * _FLAG_MOST,
            unit="us",
            path=("a flag from core to core",),
            sources=(COPY,),
            proof="run",
        )
    if not latency and "memcpy" in copies:
        best = max(copies.values())
        reach = copies.get("process_vm_readv", copies["memcpy"] * _BOUNCE)
        low, typical = _LOW, _TYPICAL
        if nbytes < _SMALL and mpich:
            low, typical = _MPICH_LOW, _MPICH_TYPICAL
        return Expectation(
            limit=best * _CORES,
            low=reach * low,
            typical=reach * typical,
            high=max(best, reach),
            path=("memory copy by the receiving core",),
            sources=(COPY,),
            proof="run",
        )
    raise NoExpectation(
        f"no copy was measured for {source}->{target} at {nbytes} bytes",
        hint="run gpu_aware with --copy",
    )
