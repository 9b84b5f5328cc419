# SPDX-License-Identifier: MIT
"""A test double for a faulty NCCL: runs torch_collectives and spoils results of collectives.

``faulty_torch.py PROGRAM OPTIONS...`` with ``FAULT`` and ``FAULT_EVERY`` as `faulty_nccl.c` has
them, and record and replay with ``FAULT_FILE``; without ``FAULT`` nothing is spoilt. Gloo lacks
three collectives: others make them here.
"""

from __future__ import annotations

import itertools
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

FAULT, EVERY = os.environ.get("FAULT", ""), int(os.environ.get("FAULT_EVERY", "97"))
calls = itertools.count(1)
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


def spoil(out: torch.Tensor, before: torch.Tensor) -> None:
    """Put the fault into a result, in place of which ``before`` was."""
    middle, place = len(out) // 2, out.storage_offset()
    if FAULT == "flip":
        out.view(torch.int32)[middle] ^= 1 << 20
    elif FAULT == "half":
        out[middle:] = before[middle:]
    elif FAULT == "drop":
        out.copy_(before)
    elif FAULT == "blocks":
        out.copy_(torch.cat([out[middle:], out[:middle]]))
    elif FAULT == "shift":
        out.copy_(out.roll(2))
    elif FAULT == "past":
        out.as_strided((1,), (1,), place + len(out)).zero_()
    elif FAULT == "ahead":
        out.as_strided((1,), (1,), place - 1).zero_()
    elif FAULT == "repeat" and len(out) in previous:
        out.copy_(previous[len(out)])


def other_messages(out: torch.Tensor, call: int) -> None:
    """Write the result to ``FAULT_FILE``, or take what an earlier run has written."""
    name = f"{os.environ['FAULT_FILE']}.{dist.get_rank()}.{call}"
    if FAULT == "replay" and not os.path.exists(name):
        return  # how many results are verified is a matter of time
    with open(name, FILE_MODE[FAULT]) as file:
        if FAULT == "record":
            torch.save(out, file)
        else:
            out.copy_(torch.load(file))


def spoilt(run: Callable[..., Any]) -> Callable[..., Any]:
    """The collective with a fault in every n-th result of this rank; the result comes first."""

    def collective(out: torch.Tensor, *rest: Any, **options: Any) -> None:
        if len(out) < 1024:  # the program's own counts and times
            run(out, *rest, **options)
            return
        call = next(calls)
        hit, before = call % EVERY == 0, out.clone()
        if hit and FAULT == "root" and run is plain_broadcast:
            rest = (1,)
        if hit and FAULT == "op" and run is plain_all_reduce:
            options["op"] = dist.ReduceOp.MAX
        if hit and FAULT == "type" and run is plain_all_reduce:
            run(out.view(torch.int32), *rest, **options)
            return
        if hit and FAULT == "lost":  # the sender has overwritten its message before it leaves
            (rest[0] if run in SENDERS else out).fill_(-2)
        run(out, *rest, **options)
        if hit and FAULT == "source":
            rest[0][len(rest[0]) // 2] = 0.5
        right = out.clone()
        if FAULT in FILE_MODE:
            other_messages(out, call)
        elif hit:
            spoil(out, before)
        previous[len(out)] = right

    return collective


plain_all_reduce, plain_broadcast = dist.all_reduce, dist.broadcast
SENDERS = (all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single)
FILE_MODE = {"record": "wb", "replay": "rb"}
dist.all_reduce = spoilt(dist.all_reduce)
dist.broadcast = spoilt(dist.broadcast)
dist.all_gather_into_tensor = spoilt(all_gather_into_tensor)
dist.reduce_scatter_tensor = spoilt(reduce_scatter_tensor)
dist.all_to_all_single = spoilt(all_to_all_single)

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
