# SPDX-License-Identifier: MIT
"""A fatal message after the last result of a passing benchmark decides the end of a run."""

from __future__ import annotations

import re

from busbar.errors import BusbarError
from busbar.explain import Source, explain
from busbar.explain.page import examples
from busbar.verdict import Verdict

from .outputs import BANNER, HOST_BANNER, ids, run
from .test_codes import faults
from .test_labels import DATA

GOOD = BANNER + "268435456  358000.00\n"
RECORDED = (
    "h200x4/nccl_no_debug.log",
    "h200x4/gpu_aware_healthy.log",
    "h200x4/nccl_healthy_a.log",
)
MAY_PASS = {"link-down", "hcoll-unusable", "rccl-host-setting", "nccl-version-mismatch"}
"""Causes that explain a bad run, and end none."""
NOTICES = ("reset by remote peer", "): 154,", "): 45,", "Hello world from")
"""What a run that measured survives: a peer that goes first, Xids that follow, another program."""
TEARDOWN = """\
[rank0]:[W1121 07:23:34.5 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources. (function operator())
[rank1]:[W1121 07:23:34.5 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=12, addr=[n1]:33042, remote=[n2]:29500): Broken pipe
[rank1]:[W1121 07:23:34.5 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=12, addr=[n1]:33042, remote=[n2]:29500): Connection reset by peer
[rank1]:[W1121 07:23:34.5 ProcessGroupNCCL.cpp:1783] [PG ID 0 PG GUID 0 Rank 1] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe
n1:4711:4720 [0] NCCL INFO [Service thread] Connection closed by localRank 0
n1:4711:4720 [0] NCCL INFO comm 0x55d rank 0 nranks 4 cudaDev 0 busId 1c000 - Destroy COMPLETE
n1:4711:4720 [0] NCCL INFO comm 0x55d rank 0 nranks 4 cudaDev 0 busId 1c000 - Abort COMPLETE
[1795332270.222] [n3:546:0] flush.c:56 UCX  ERROR req 0x55d2: error during flush: Connection reset by remote peer
[1795332270.222] [n3:546:0] mpool.c:55 UCX  WARN  object 0x7f0001 was not returned to mpool ucp_requests
[1795332270.222] [n3:546:0] tag_match.c:62 UCX  WARN  unexpected tag-receive descriptor 0x7f was not matched
/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown
slurmstepd: info: task 0 exited with status 0
"""  # noqa: E501
"""Lines that healthy programs print when they end."""


def passes(text: str) -> bool:
    return run(text, site="h200x4").verdict is Verdict.PASS


def fails_alone(text: str) -> bool:
    try:
        return any(
            each.verdict is Verdict.FAILED for each in explain([Source.from_text("x", text)])
        )
    except BusbarError:
        return False


def test_a_fatal_message_after_a_pass_is_no_pass() -> None:
    assert passes(GOOD)
    lines = [(cause, line + "\n") for _, cause, line in faults()]
    lines += [
        (cause, each.text)
        for cause, rows in examples().items()
        for each in rows
        if not (
            each.site or each.verdict or each.text.startswith("{") or "\n#" in f"\n{each.text}"
        )
    ]
    fatal = [
        (cause, text)
        for cause, text in lines
        if cause not in MAY_PASS
        and not any(each in text for each in NOTICES)
        and fails_alone(text)
    ]
    assert len(fatal) > 800
    assert [each for each in fatal if passes(GOOD + each[1])] == []


def test_recorded_runs_that_end_badly() -> None:
    fault = "gpu1:1:2 [0] NCCL WARN Mismatched collective detected, please check your collective\n"
    for name in RECORDED:
        text = (DATA / name).read_text().split("\n", 1)[1]
        for end in (fault, "torch.OutOfMemoryError: CUDA out of memory.\n", "exit_status=7\n"):
            assert run(text).verdict is Verdict.PASS
            assert run(text + end).verdict is Verdict.FAILED, (name, end)


def test_what_programs_print_at_their_end_is_harmless() -> None:
    found = [line for line in TEARDOWN.splitlines() if not passes(GOOD + line + "\n")]
    assert not found
    for name in RECORDED:
        found = run((DATA / name).read_text() + re.sub(r"\bn[13]:", "vm:", TEARDOWN))
        assert found.verdict is Verdict.PASS, name


def test_a_message_before_results_was_survived() -> None:
    message = "[1.0] [n1:5:0] select.c:657  UCX  ERROR   no active messages transport to <no\n"
    rows = "268435456  358000.00\n"
    assert passes(f"{message}{BANNER}{rows}")
    assert passes(f"{BANNER}134217728  358000.00\n{message}{rows}")
    assert ids(run(f"{BANNER}{rows}{message}")) == {"ucx-no-transport"}


def test_the_order_of_two_files_is_not_known() -> None:
    message = "[1.0] [n1:5:0] select.c:657  UCX  ERROR   no active messages transport to <no\n"
    assert run(HOST_BANNER + "268435456  358000.00\n", message).verdict is Verdict.UNJUDGED
