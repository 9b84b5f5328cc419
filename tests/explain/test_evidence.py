# SPDX-License-Identifier: MIT
"""Evidence names the node, pod, rank or device, and a collective of one rank accuses nobody."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from .outputs import ids, run

GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"
RULE = "-" * 74 + "\n"
BOX = RULE + (
    "WARNING: There is at least one OpenFabrics device found but there are\n"
    "no active ports detected (or Open MPI was unable to use them).\n\n"
    "  Local host: n17\n"
)
TERMINATION = (
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
    "=   PID 410 RUNNING AT n09\n"
    "=   EXIT CODE: 139\n"
)
ONE_RANK = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20"
    " agg iters: 1 validation: 1 graph: 0\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid  12 on n1 device  0 [0x01] NVIDIA A10G\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
    "            (us)  (GB/s)  (GB/s)\n"
    "     8388608       2097152     float     sum      -1    37.20  225.50    0.00      0"
    "     0.30  27962.0    0.00      0\n"
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 0\n"
)


@pytest.mark.parametrize(
    ("text", "node"), [(BOX + RULE, "Local host: n17"), (TERMINATION, "RUNNING AT n09")]
)
def test_the_node_that_a_message_is_about(text: str, node: str) -> None:
    assert any(node in line.text for line in run(text).causes[0].evidence)


def test_a_node_beyond_the_help_text_is_not_named() -> None:
    found = run(BOX.replace("  Local host: n17\n", "") + RULE + "  Local host: n17\n")
    assert found.causes
    assert not any("n17" in line.text for cause in found.causes for line in cause.evidence)


def test_the_node_that_failed_is_not_the_one_that_says_so() -> None:
    cancelled = "*** JOB 8 ON n18 CANCELLED AT 2026-11-26T04:00:00 DUE TO NODE FAILURE, SEE SLURM"
    text = f"srun: error: Node failure on n19\nslurmstepd: error: {cancelled}\n"
    assert [(cause.id, cause.host) for cause in run(text).causes] == [("node-fault", "n19")]


def test_one_rank_accuses_nobody() -> None:
    found = run(ONE_RANK)
    assert not found.causes
    assert str(found.verdict) == "unjudged"
    assert [note.id for note in found.notes if note.id != "site-recognised"] == ["one-rank"]


def test_a_bus_bandwidth_of_0_of_two_ranks() -> None:
    second = "#  Rank  1 Group  0 Pid  12 on n1 device  1 [0x02] NVIDIA A10G\n"
    header = "#       size"
    assert ids(run(ONE_RANK.replace(header, second + header, 1))) == {"invalid-reading"}


def of_groups(busbw: float, group: Callable[[int], int]) -> str:
    """What nccl-tests prints of several communicators at once, on two nodes of 8 x H100."""
    devices = "".join(
        f"#  Rank {n} Group {group(n)} Pid {n} on n{n // 8} device {n % 8} [0x0{n % 8}] {H100}\n"
        for n in range(16)
    )
    before, _, after = ONE_RANK.partition("#  Rank  0 Group  0 Pid  12 on n1 device  0 [0x01]")
    reading = f"{GIB / busbw / 1e3:.1f} {busbw} {busbw} 0"
    row = f"{GIB} {GIB // 4} float sum -1 {reading} {reading}\n"
    table = re.sub(" +8388608.*\n", row, after.partition("\n")[2]).replace(": 0\n", f": {busbw}\n")
    return f"# Collective test starting: all_reduce_perf\n{before}{devices}{table}"


@pytest.mark.parametrize(
    ("busbw", "verdict", "causes"),
    [
        (43.0, "pass", set()),
        (24.0, "unjudged", set()),  # nobody measured such runs
        (12.0, "degraded", {"below-band-unexplained"}),
    ],
)
def test_communicators_at_once_share_the_nics(
    busbw: float, verdict: str, causes: set[str]
) -> None:
    """NCCL_TESTS_SPLIT_MASK=0x7: eight of two ranks, one on each node, each with a NIC."""
    found = run(of_groups(busbw, lambda rank: rank % 8), site="dgx-h100")
    assert (str(found.verdict), found.ranks, found.nodes) == (verdict, 2, 2)
    assert {cause.id for cause in found.causes} == causes
    assert "mislabelled-collective" not in {note.id for note in found.notes}


def test_communicators_that_are_not_alike() -> None:
    found = run(of_groups(43.0, lambda rank: int(rank > 1)), site="dgx-h100")
    assert (str(found.verdict), found.causes) == ("unjudged", ())
    assert any("communicators are not alike" in note.summary for note in found.notes)
