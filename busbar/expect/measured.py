# SPDX-License-Identifier: MIT
"""The expectation on a machine nobody knows: MPI judged by a plain copy of the same run.

Two processes of a node pass bytes through a kernel copy (cross memory attach) or through shared
memory. ``gpu_aware --copy`` measures both without MPI, pair by pair and size by size, next to each
MPI reading, so that what slows the machine slows both.
"""

from __future__ import annotations

from busbar.expect import NoExpectation
from busbar.expect.expectation import Expectation
from busbar.parse.gpu_aware import Ceiling, GpuAwareRun, Reading

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
# Latency over that of a flag between two cores: 1.5 to 2 seen through shared memory, 23 to 30
# with TCP. A flag's own time varies by a factor of two with the placement of the cores.
_FLAG_LEAST, _FLAG_TYPICAL, _FLAG_MOST = 0.5, 2.0, 12.0

_SOURCE = "a plain copy between the same two processes, measured in the same run"


def expectation(run: GpuAwareRun, reading: Reading) -> Expectation:
    """Limit and band for ``reading`` from the ceilings of ``run``.

    Raises ``NoExpectation`` when the run has no ceiling for that pair and size.
    """
    ceilings = {
        ceiling.method: ceiling.value
        for ceiling in run.ceilings
        if (ceiling.source, ceiling.target) == (reading.source, reading.target)
        and _same_size(ceiling, reading)
        and ceiling.value is not None
    }
    if reading.metric == "latency" and "flag" in ceilings:
        flag = ceilings["flag"]
        return Expectation(
            limit=flag * _FLAG_LEAST,
            low=flag * _FLAG_LEAST,
            typical=flag * _FLAG_TYPICAL,
            high=flag * _FLAG_MOST,
            unit="us",
            path=("a flag from core to core",),
            sources=(_SOURCE,),
            proof="run",
        )
    if reading.metric == "bandwidth" and "memcpy" in ceilings:
        best = max(value for method, value in ceilings.items() if method != "flag")
        reach = ceilings.get("process_vm_readv", ceilings["memcpy"] * _BOUNCE)
        low, typical = _LOW, _TYPICAL
        if reading.nbytes < _SMALL and any("MPICH" in start.mpi for start in run.starts):
            low, typical = _MPICH_LOW, _MPICH_TYPICAL
        return Expectation(
            limit=best * _CORES,
            low=reach * low,
            typical=reach * typical,
            high=max(best, reach),
            path=("memory copy by the receiving core",),
            sources=(_SOURCE,),
            proof="run",
        )
    raise NoExpectation(
        f"no copy was measured for {reading.source}->{reading.target} at {reading.nbytes} bytes",
        hint="run gpu_aware with --copy",
    )


def _same_size(ceiling: Ceiling, reading: Reading) -> bool:
    return ceiling.method == "flag" or ceiling.nbytes == reading.nbytes
