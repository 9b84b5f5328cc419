# SPDX-License-Identifier: MIT
"""The expectation of a copy within the memory of one GPU.

The GPU states what its memory carries: two transfers a clock cycle over its width. A copy reads
and writes, so its rate is at most half of that.
"""

from __future__ import annotations

from busbar.expect.expectation import Expectation

_KNOWN = {"NVIDIA H100 80GB HBM3": (3352.0, 0.862), "NVIDIA H200": (4814.0, 0.824)}
"""The memory rate in GB/s, and the share of half of it that a copy reaches: 1,446 GB/s on an H100,
1,983 GB/s on an H200, by cudaMemcpy of 256 MiB (h100x1/copies.tsv, h200x1/memory.log)."""
_LOW, _HIGH = 0.92, 1.08
_FLOOR = 0.5


def expectation(model: str, memory_gb_per_s: float, nbytes: int) -> Expectation:
    """Limit and band in GB/s copied; for a GPU of which no reading is known, a floor.

    The output cannot lower the rate of a memory that is known, and its band with it.
    """
    known, share = _KNOWN.get(model, (0.0, 0.0))
    memory_gb_per_s = max(memory_gb_per_s, known)
    limit = memory_gb_per_s / 2
    path = (f"memory of the GPU: {memory_gb_per_s:.4g} GB/s, read and written",)
    if share:
        typical = share * limit
        return Expectation(
            limit=limit,
            low=_LOW * typical,
            typical=typical,
            high=min(limit, _HIGH * typical),
            path=path,
            sources=(f"{share:g} of half the memory rate",),
            proof="run",
            nbytes=nbytes,
        )
    low = _FLOOR * limit
    return Expectation(
        limit=limit,
        low=low,
        typical=low,
        high=limit,
        path=path,
        sources=(f"floor: {_FLOOR:g} of half the memory rate; no reading is known of {model}",),
        nbytes=nbytes,
        floor=True,
    )
