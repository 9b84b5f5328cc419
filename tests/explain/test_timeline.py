# SPDX-License-Identifier: MIT
"""What failed first is the cause; what the other ranks did then is its consequence."""

from __future__ import annotations

import itertools
import time

from .outputs import run

ROOTS = {
    "rank-died": [
        ["[rank37]: Traceback (most recent call last):", "[rank37]: KeyError: 'input_ids'"],
        ["[rank37]: ValueError: Loss is nan, stopping training"],
        ["[rank37]: RuntimeError: shape '[2, 8]' is invalid for input of size 15"],
        [
            "[gpu-004:01234] *** Process received signal ***",
            "[gpu-004:01234] Signal: Segmentation fault (11)",
        ],
    ],
    "gpu-program-fault": [
        ["[rank37]: RuntimeError: CUDA error: an illegal memory access was encountered"]
    ],
    "gpu-out-of-memory": [["[rank37]: torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB"]],
    "gpu-fault": [
        [
            "Nov 21 00:42:50 gpu-004 kernel: NVRM: Xid (PCI:0000:86:00): 79, pid=1234, python,"
            " GPU has fallen off the bus."
        ],
        ["[rank37]: RuntimeError: CUDA error: uncorrectable ECC error encountered"],
    ],
    "out-of-memory": [
        ["Nov 21 00:42:50 gpu-004 kernel: Out of memory: Killed process 1234 (python)"]
    ],
    "link-down": [["Nov 21 00:42:50 gpu-004 kernel: mlx5_core 0000:86:00.0: Port: 1 Link DOWN"]],
    "cannot-write": [["[rank37]: OSError: [Errno 28] No space left on device: '/ckpt/7.pt'"]],
    "memlock-limit": [
        [
            "gpu-004:1234:1300 [5] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate"
            " memory"
        ]
    ],
    "node-fault": [
        [
            "slurmstepd: error: *** JOB 7 ON gpu-004 CANCELLED AT 2026-11-21T00:42:50 DUE TO NODE"
            " FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
        ]
    ],
}
WATCHDOG = (
    "[rank{0}]:[E1121 00:52:51.123 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,"
    " Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)
CONSEQUENCES = {
    "timeout": WATCHDOG,
    "fabric-timeout": "gpu-001:77:90 [{0}] NCCL WARN NET/IB : Got completion from peer"
    " 10.0.0.4<41000> with status=12 opcode=0 len=0 vendor err 129",
    "peer-unreachable": "gpu-001:77:90 [{0}] misc/socket.cc:484 NCCL WARN socketStartConnect:"
    " Connect to 10.0.0.4<41000> failed : Connection refused",
    "": "gpu-001:77:90 [{0}] misc/socket.cc:484 NCCL WARN socketProgress: Connection closed by"
    " remote peer gpu-004<41000>",
    "-": "MPI_ABORT was invoked on rank {0} in communicator MPI_COMM_WORLD with errorcode 1.",
}
"""By the cause that each would be by itself; the last two are none that is named as well."""


def test_the_first_failure_is_the_cause_and_the_others_follow() -> None:
    """13 roots, 5 consequences, and the lines in two orders."""
    wrong = []
    roots = [(cause, lines) for cause, rows in ROOTS.items() for lines in rows]
    assert len(roots) == 13
    for (cause, lines), (kind, line) in itertools.product(roots, CONSEQUENCES.items()):
        others = [line.format(rank) for rank in range(1, 4)]
        for order in ([*lines, *others], [*others, *lines]):
            (first, *rest) = run("\n".join(order) + "\n").causes
            placed = first.rank == 37 or first.host == "gpu-004"
            named = kind in ("", "-") or kind in {each.id for each in first.consequences}
            if (first.id, rest) != (cause, []) or not placed or not named:
                wrong.append((cause, kind, first.id, first.rank, first.host, rest))
    assert not wrong


def test_what_others_waited_for_is_one_sentence() -> None:
    lines = ["[rank37]: KeyError: 'input_ids'", *(WATCHDOG.format(rank) for rank in range(5))]
    (cause,) = run("\n".join(lines) + "\n").causes
    assert cause.summary == (
        "rank 37 raised KeyError: 'input_ids'; 5 ranks waited for it until the watchdog ended them"
        " at 00:52:51"
    )


def test_what_the_rank_did_before_is_shown() -> None:
    lines = ["[rank37]: loading shard 17 of 20", "[rank2]: step 9", ROOTS["rank-died"][0][0]]
    lines += ["[rank37]: KeyError: 'input_ids'", *(WATCHDOG.format(rank) for rank in range(5))]
    (cause,) = run("\n".join(lines) + "\n").causes
    assert cause.details["before"] == lines[0]


def test_a_silent_a_late_and_a_failed_rank_of_a_hundred() -> None:
    lines = [
        f"gpu-{rank // 8:03}:{5000 + rank}:{6000 + rank} [{rank % 8}] NCCL INFO ncclCommInitRank"
        f" comm 0x55d{rank} rank {rank} nranks 100 cudaDev {rank % 8} nvmlDev {rank % 8}"
        f" busId {0x18 + rank % 8:x}000 commId 0x77 - Init START"
        for rank in range(100)
    ]
    lines.append("[rank37]: KeyError: 'input_ids'")
    waiting = (WATCHDOG.format(rank) for rank in range(100) if rank not in (37, 50))
    lines += [each.replace("812", "811") if "[Rank 12]" in each else each for each in waiting]
    started = time.process_time()
    causes = run("\n".join(lines) + "\n").causes
    assert time.process_time() - started < 2
    assert [(each.id, each.rank, each.host, each.gpu, each.pid) for each in causes] == [
        ("rank-died", 37, "gpu-004", "5", 5037),
        ("rank-late", 12, "gpu-001", "4", 5012),
        ("rank-silent", 50, "gpu-006", "2", 5050),
    ]
    assert causes[2].summary.endswith("ALLREDUCE 812 of 4 elements, in which 97 ranks waited")
    # The kernel names a GPU by its PCI address.
    xid = "Nov 21 00:42:50 gpu-006 kernel: NVRM: Xid (PCI:0000:1a:00): 79, name=python, fallen off"
    (first, *_) = run("\n".join([*lines, xid]) + "\n").causes
    assert (first.id, first.rank, first.gpu) == ("gpu-fault", 50, "2")


def test_a_rank_that_waited_is_not_the_cause() -> None:
    """Those that waited have earlier lines than the one that says nothing, in any order."""
    waiting = [
        WATCHDOG.format(rank).replace("00:52:51", f"00:52:5{rank}")
        for rank in (3, 1, 0, 4, 7, 6, 5)
    ]
    ended = (
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-21T00:59:00 DUE TO TIME LIMIT ***"
    )
    for lines in (waiting, sorted(waiting), waiting[::-1]):
        (cause,) = run("\n".join([*lines, ended]) + "\n").causes
        assert (cause.id, cause.rank) == ("rank-silent", 2)
        assert {each.id for each in cause.consequences} == {"timeout"}


def test_the_older_failure_is_the_cause() -> None:
    """By the times of one file, or by the order of the lines of one process."""
    network = "Nov 21 00:4{}:50 gpu-001 app: Transport retry count exceeded on mlx5_0:1/IB"
    memory = "Nov 21 00:44:50 gpu-001 kernel: Out of memory: Killed process 1234 (python)"
    for minute, first in ((2, "fabric-timeout"), (6, "out-of-memory")):
        causes = run(f"{memory}\n{network.format(minute)}\n").causes
        assert causes[0].id == first or {each.id for each in causes} == {
            "fabric-timeout",
            "out-of-memory",
        }, minute
        assert (len(causes) == 1) == (first == "out-of-memory")


def test_a_rank_that_waited_raises_what_others_bring_about() -> None:
    """Without an exception of its own, and at the end of a job's time, the limit is the cause."""
    waited = "[rank3]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3"
    ended = (
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-21T00:52:51 DUE TO TIME LIMIT ***"
    )
    for lines in ([WATCHDOG.format(3), waited], ["[rank37]: KeyError: 'input_ids'", ended]):
        assert [cause.id for cause in run("\n".join(lines) + "\n").causes][:1] == ["timeout"], (
            lines
        )


def test_a_rank_with_another_size_is_named() -> None:
    lines = [WATCHDOG.format(rank) for rank in range(1, 6)]
    lines[3] = lines[3].replace("NumelIn=4", "NumelIn=3")
    (cause,) = run("\n".join(lines) + "\n").causes
    assert (cause.id, cause.confidence) == ("collective-mismatch", "certain")
    assert cause.summary.startswith("rank 4 is at ALLREDUCE 812 of 3 elements, rank")
    assert cause.consequences[0].summary.startswith("4 ranks waited in ALLREDUCE 812 of 4 el")


def test_a_rank_that_enqueued_less_is_late() -> None:
    """Only PyTorch's dump shows it: nothing of a watchdog. Its line shows the node."""
    group = "[PG ID 0 PG GUID 0(default_pg) Rank {}]"
    lines = [WATCHDOG.format(rank) for rank in range(9) if rank != 2]
    lines.append(f"{group.format(0)} at work: 812, last enqueued NCCL work: 814, last ")
    own = f"n2: [rank2]:[E] {group.format(2)} Received a dump signal. Last enqueued NCCL"
    (cause,) = run("\n".join([*lines, f"{own} work: 811"]) + "\n").causes
    assert (cause.id, cause.rank, cause.host) == ("rank-late", 2, "n2")
    assert cause.summary == (
        "rank 2 (n2) enqueued nothing after 811, not ALLREDUCE 812 of 4 elements, in which 8 ranks"
        " waited"
    )
    for other in (f"{own} work: 813", f"{own} work: 811".replace("GUID 0", "GUID 7")):
        (cause,) = run("\n".join([*lines, other]) + "\n").causes
        assert (cause.id, cause.rank) == ("rank-silent", 2)


def test_an_excerpt_that_stops_within_a_line_accuses_nobody() -> None:
    """The last word is not another collective, another size, or a wrong value."""
    lines = [WATCHDOG.format(rank) for rank in range(5)]
    for cut in ("OpType=ALLR", "NumelIn=", "OpType=ALLREDUCE, NumelIn=16"):
        text = "\n".join([*lines, WATCHDOG.format(5).partition("OpType")[0] + cut])
        assert [cause.id for cause in run(text).causes] == ["timeout"], cut
    head = "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
    row = "  {}  32  float  sum  427.0  0.00  0.00  3e-08  158.6  0.00  0.00  {}\n"
    for cut in ("3e", "3e-", "3e-0"):
        assert not run(
            "# nThread 1\n" + head + row.format(64, "3e-08") + row.format(128, cut)
        ).causes
