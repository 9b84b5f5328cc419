# SPDX-License-Identifier: MIT
"""A test double for a faulty NCCL: runs torch_collectives and spoils results of collectives.

``faulty_torch.py PROGRAM OPTIONS...`` with the variables of `faulty_mpi.c`: ``FAULT`` is flip,
half, repeat, stale (the result is what was there before) or past (behind the result a number
changes); without it nothing is spoilt. Gloo lacks three collectives: others make them here.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

FAULT, EVERY = os.environ.get("FAULT", ""), int(os.environ.get("FAULT_EVERY", "97"))
calls = 0
previous: dict[int, torch.Tensor] = {}


def all_gather_into_tensor(out: torch.Tensor, mine: torch.Tensor) -> None:
    dist.all_gather(list(out.chunk(dist.get_world_size())), mine)


def reduce_scatter_tensor(out: torch.Tensor, mine: torch.Tensor) -> None:
    whole = mine.clone()
    plain_all_reduce(whole)
    out.copy_(whole.chunk(dist.get_world_size())[dist.get_rank()])


def all_to_all_single(out: torch.Tensor, mine: torch.Tensor) -> None:
    ranks = dist.get_world_size()
    every = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(every, mine)
    out.copy_(torch.cat([each.chunk(ranks)[dist.get_rank()] for each in every]))


def spoilt(run: Callable[..., Any]) -> Callable[..., Any]:
    """The collective with a fault in every n-th result of this rank; the result comes first."""

    def collective(out: torch.Tensor, *rest: Any, **options: Any) -> None:
        global calls
        before = out.clone()
        run(out, *rest, **options)
        if len(out) < 1024:  # the program's own counts and times
            return
        right, calls = out.clone(), calls + 1
        if FAULT and calls % EVERY == 0:
            if FAULT == "flip":
                out.view(torch.int32)[len(out) // 2] ^= 1 << 20
            elif FAULT == "half":
                out[len(out) // 2 :] = before[len(out) // 2 :]
            elif FAULT == "stale":
                out.copy_(before)
            elif FAULT == "past":
                out.as_strided((1,), (1,), out.storage_offset() + len(out)).zero_()
            elif FAULT == "repeat" and len(out) in previous:
                out.copy_(previous[len(out)])
        previous[len(out)] = right

    return collective


plain_all_reduce = dist.all_reduce
dist.all_reduce = spoilt(dist.all_reduce)
dist.broadcast = spoilt(dist.broadcast)
dist.all_gather_into_tensor = spoilt(all_gather_into_tensor)
dist.reduce_scatter_tensor = spoilt(reduce_scatter_tensor)
dist.all_to_all_single = spoilt(all_to_all_single)

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
