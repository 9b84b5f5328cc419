# SPDX-License-Identifier: MIT
"""A job that was cancelled did not run; what it had measured before, or failed at, counts."""

from __future__ import annotations

from busbar.verdict import Verdict
from tests.cases import cases

from .outputs import nccl_table, run

FAST = nccl_table({1 << 28: 337.0, 1 << 30: 356.0})
SLOW = nccl_table({1 << 28: 37.0, 1 << 30: 36.0})
CUT = FAST.partition("# Out of bounds")[0]
JOB = "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-11-01T00:00:00 ***\n"
STEP = "slurmstepd: error: *** STEP 4711.0 ON n1 CANCELLED AT 2026-11-01T00:00:00 ***\n"
ENDED = "srun: Job step aborted: Waiting for it.\nsrun: error: n1: tasks 0-3: Terminated\n"
ABORTED = "srun: launch/slurm: x: StepId=4711.0 aborted before step completely launched.\n"
LAUNCH = "srun: error: timeout waiting for task launch, started 0 of 1 tasks\n"
EXITED = "srun: error: n1: task 3: Exited with exit code 1\n"
EXCEPTION = "Traceback (most recent call last):\n  File 'a.py', line 3\nKeyError: 'loss'\n"
FOLLOWS = (
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15\n"
    "n1:1:2 [0] misc/socket.cc:484 NCCL WARN Connection closed by remote peer n2<4711>\n"
    "[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:9, remote process exited\n"
)
SACCT = (
    "4711        train  lab  ops  64 {}  0:0\n4711.batch  batch       ops  64  CANCELLED  0:15\n"
)
CASES = {
    "scancel": (JOB + STEP + ENDED, Verdict.NOT_RUN, "job-cancelled"),
    "scancel of a step": (STEP + ENDED, Verdict.NOT_RUN, "job-cancelled"),
    "during the launch": (ABORTED + ENDED + JOB, Verdict.NOT_RUN, "job-cancelled"),
    "the ranks' end is told first": (ENDED + JOB, Verdict.NOT_RUN, "job-cancelled"),
    "what the ranks say of it": ("step 7\n" + JOB + FOLLOWS, Verdict.NOT_RUN, "job-cancelled"),
    "accounting": (SACCT.format("CANCELLED+"), Verdict.NOT_RUN, "job-cancelled"),
    "PBS": ("job deleted\nJob deleted at request of ops@head\n", Verdict.NOT_RUN, "job-cancelled"),
    "LSF": (
        "TERM_PREEMPT: job killed after preemption.\nExited with exit code 143.\n",
        Verdict.NOT_RUN,
        "job-cancelled",
    ),
    "a table without its end": (CUT + JOB, Verdict.NOT_RUN, "job-cancelled"),
    # What was measured before it counts.
    "after a fast run": (FAST + JOB + ENDED, Verdict.PASS, ""),
    "after a slow run": (SLOW + JOB, Verdict.DEGRADED, "below-band-unexplained"),
    # What failed before it counts.
    "a rank failed first": (EXITED + STEP + ENDED, Verdict.FAILED, "rank-died"),
    "a launch failed first": (LAUNCH + ABORTED + JOB, Verdict.FAILED, "launch-failed"),
    "a launch was aborted, by nobody": (ABORTED, Verdict.FAILED, "launch-failed"),
    "a rank exited first": (EXITED + ENDED + JOB, Verdict.FAILED, "rank-died"),
    "a rank was killed first": (
        "srun: error: n1: task 3: Killed\n" + ENDED + JOB,
        Verdict.FAILED,
        "rank-died",
    ),
    "a rank failed, told later": (STEP + EXITED, Verdict.FAILED, "rank-died"),
    "an exception first": (EXCEPTION + JOB, Verdict.FAILED, "rank-died"),
    "queued again, and failed": (JOB + "step 1\n" + EXCEPTION, Verdict.FAILED, "rank-died"),
    "queued again, and out of memory": (
        JOB + "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0.\n",
        Verdict.FAILED,
        "out-of-memory",
    ),
    "a GPU first": ("NVRM: Xid (PCI:0000:3b:00): 79, x\n" + JOB, Verdict.FAILED, "gpu-fault"),
    "a time limit": (SACCT.format("TIMEOUT"), Verdict.FAILED, "timeout"),
}


@cases("name", CASES)
def test_a_cancelled_job(name: str) -> None:
    text, verdict, cause = CASES[name]
    found = run(text, site="h200x4")
    assert (found.verdict, found.causes[0].id if found.causes else "") == (verdict, cause)
    if verdict is Verdict.PASS:
        assert "job-cancelled" in [note.id for note in found.notes]
