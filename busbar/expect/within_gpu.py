# SPDX-License-Identifier: MIT
"""The expectation of a copy within the memory of one GPU.

The GPU states what its memory carries: two transfers a clock cycle over its width. A copy reads
and writes, so its rate is at most half of that.
"""

from __future__ import annotations

from busbar.expect.expectation import Expectation

_SHARES = {"NVIDIA H100 80GB HBM3": 0.862, "NVIDIA H200": 0.824}
"""Of half the memory rate: 1,446 GB/s on an H100 (3,352 GB/s), 1,983 GB/s on an H200 (4,814 GB/s),
by cudaMemcpy of 256 MiB (h100x1/copies.tsv, h200x1/memory.log)."""
_LOW, _HIGH = 0.92, 1.08
_FLOOR = 0.5


def expectation(model: str, memory_gb_per_s: float, nbytes: int) -> Expectation:
    """Limit and band in GB/s copied; for a GPU of which no reading is known, a floor."""
    limit = memory_gb_per_s / 2
    path = (f"memory of the GPU: {memory_gb_per_s:.4g} GB/s, read and written",)
    share = _SHARES.get(model)
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
