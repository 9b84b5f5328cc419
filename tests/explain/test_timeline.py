# SPDX-License-Identifier: MIT
"""What failed first is the cause; what the other ranks did then is its consequence."""

from __future__ import annotations

import itertools

from .outputs import run

ROOTS = {
    "KeyError": "[rank37]: KeyError: 'input_ids'",
    "ValueError": "[rank37]: ValueError: loss is nan",
    "RuntimeError": "[rank37]: RuntimeError: shape '[2, 8]' is invalid for input of size 15",
    "FileNotFoundError": "[rank37]: FileNotFoundError: [Errno 2] /data/shard-7",
}
CONSEQUENCES = [
    "[rank{0}]:[E1121 00:52:51.123 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,"
    " Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    "[rank{0}]:[E1121 00:52:51.200 ProcessGroupNCCL.cpp:684] [Rank {0}] Some NCCL operations have"
    " failed or timed out. Due to the asynchronous nature of CUDA kernels",
    "[rank{0}]:[E1121 00:52:51.200 ProcessGroupNCCL.cpp:1575] [PG 0 Rank {0}] ProcessGroupNCCL's"
    " watchdog got stuck for 600 seconds without making progress",
]


def test_the_exception_that_others_waited_for_is_the_cause() -> None:
    wrong = []
    for (name, root), consequence in itertools.product(ROOTS.items(), CONSEQUENCES):
        others = [consequence.format(rank) for rank in range(1, 6)]
        failed = ["[rank37]: Traceback (most recent call last):", root]
        for lines in ([*failed, *others], [*others, *failed]):
            (cause,) = run("\n".join(lines) + "\n").causes
            text = cause.summary
            said = text.startswith(f"rank 37 raised {name}") and text.endswith("at 00:52:51")
            if cause.id != "rank-died" or not said or "waited for it" not in text:
                wrong.append((name, cause.id, text))
    assert not wrong


def test_a_rank_that_waited_raises_what_others_bring_about() -> None:
    """Without an exception of its own, and at the end of a job's time, the limit is the cause."""
    waited = "[rank3]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3"
    ended = (
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-21T00:52:51 DUE TO TIME LIMIT ***"
    )
    for lines in ([CONSEQUENCES[0].format(3), waited], [ROOTS["KeyError"], ended]):
        assert [cause.id for cause in run("\n".join(lines) + "\n").causes][:1] == ["timeout"], (
            lines
        )


def test_a_rank_with_another_size_is_named() -> None:
    lines = [CONSEQUENCES[0].format(rank) for rank in range(1, 6)]
    lines[3] = lines[3].replace("NumelIn=4", "NumelIn=3")
    (cause,) = run("\n".join(lines) + "\n").causes
    assert (cause.id, cause.confidence) == ("collective-mismatch", "certain")
    assert cause.summary.startswith("rank 4 is at ALLREDUCE 812 of 3 elements, rank")
