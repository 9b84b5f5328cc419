# SPDX-License-Identifier: MIT
"""A line that shows the end of a rank or a broken GPU fails a run, whatever its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar.check.causes import explained
from busbar.explain import Source, explain
from busbar.judge.bench import judge
from busbar.judge.launch import show
from busbar.judge.results import Outcome, Result
from busbar.verdict import Verdict

from ..reframe.kinds import KINDS

KIND = KINDS["xccl"]
SIGNALS = """\
mpirun noticed that process rank 3 with PID 4242 on node vm exited on signal 9 (Killed).
mpirun noticed that process rank 3 exited on signal 9 (Killed).
prterun noticed that process rank 1 with PID 77 on n1 exited on signal 11 (Segmentation fault).
prterun has exited due to process rank 2 with PID 1705216 on node nid003032 exiting improperly.
[vm:12295] *** Process received signal ***
[vm:12295] Signal: Segmentation fault (11)
*** Process received signal *** Segmentation fault (11)
[vm:12295:0:12295] Caught signal 7 (Bus error: nonexistent physical address)
srun: error: node1: task 3: Segmentation fault
srun: error: node1: tasks 0-3: Killed
srun: error: node1: task 0: Bus error (core dumped)
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: Force Terminated StepId=42.0
srun: error: Node failure on n1
slurmstepd: error: *** STEP 42.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 ***
slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO PREEMPTION ***
slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO NODE FAILURE ***
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)
=   KILLED BY SIGNAL: 9 (Killed)
x1000c0s0b0n0.hostmgmt: rank 3 died from signal 11 and dumped core
nid001003.chn: rank 12 exited with code 139
flux-job: task(s) Segmentation fault
flux-job: task(s) exited with exit code 137
bash: line 1: 12295 Segmentation fault      (core dumped) ./all_reduce_perf
/var/spool/slurm/job42/slurm_script: line 9:  1234 Killed                  ./all_reduce_perf
/bin/sh: 7: Bus error (core dumped)
Aborted (core dumped)
all_reduce_perf[1234]: segfault at 0 ip 00007f1 sp 00007ffd error 4 in libnccl.so.2[7f+1000]
traps: all_reduce_perf[1234] general protection fault ip:7f sp:7f error:0 in libcuda.so
terminate called after throwing an instance of 'std::runtime_error'
free(): invalid pointer
double free or corruption (!prev)
all_reduce_perf: common.cu:33: main: Assertion `0' failed.
PRTE has lost communication with a remote daemon.
Exited with exit code 139.
"""
MEMORY = """\
slurmstepd: error: Detected 1 oom-kill event(s) in StepId=42.0. Some of the step tasks have been
slurmstepd: error: Detected 1 oom_kill event in StepId=42.0.
slurmstepd: error: Exceeded step memory limit at some point.
srun: error: n1: task 0: Out Of Memory
[123.4] Out of memory: Killed process 1234 (all_reduce_perf) total-vm:1kB, anon-rss:1kB
[123.4] Memory cgroup out of memory: Killed process 1234 (python3)
[123.4] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3,pid=1234,uid=0
[123.4] python3 invoked oom-killer: gfp_mask=0x100cca, order=0, oom_score_adj=0
=>> PBS: job killed: mem 4194304kb exceeded limit 2097152kb
TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
LIMITS = """\
*** JOB 5 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***
slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***
=>> PBS: job killed: walltime 3625 exceeded limit 3600
TERM_RUNLIMIT: job killed after reaching LSF run time limit.
2.5s: job.exception type=timeout severity=0 resource allocation expired
flux-job: job timed out
job timed out (120s)
mpirun: A user-provided time limit for job execution has been reached:
timeout: sending signal TERM to command 'mpirun'
[E ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: Work
"""
ABORTS = """\
MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD
application called MPI_Abort(MPI_COMM_WORLD, 1) - process 2
Abort(1094543) on node 2 (rank 2 in comm 0): Fatal error in PMPI_Send: Other MPI error
Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0
MPICH ERROR [Rank 0] [job id 1.0] [x] [nid1] - Abort(1) (rank 0 in comm 0): MPIDI_CRAY_init
[vm:12295] *** An error occurred in MPI_Send
[vm:12295] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
PMIX_ABORT was invoked on rank 2 with status 1
slurmstepd: error: mpi/pmix_v4: pmixp_abort: n1 [0]: abort called: status = 1
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
failed (exitcode: -9) local_rank: 0 (pid: 4711) of binary: /usr/bin/python3
"""
DEVICES = """\
Test CUDA failure all_reduce.cu:12 unhandled error
vm: Test NCCL failure common.cu:1005 'unhandled cuda error'
10-0-0-1: Test CUDA failure common.cu:303 'out of memory'
vm: Test HIP failure common.cu:303 'invalid device ordinal'
vm: Test failure common.cu:401
vm:1:1 [0] enqueue.cc:1 NCCL WARN Cuda failure uncorrectable ECC error
vm:1:1 [0] enqueue.cc:1 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'
vm:1:1 [0] enqueue.cc:1 NCCL WARN HIP failure 'hipErrorNoBinaryForGpu'
[ 12.3] NVRM: Xid (PCI:0000:06:00): 79, pid=1234, GPU has fallen off the bus.
NVRM: Xid 79, GPU has fallen off the bus
NVRM: Xid (PCI:0000:06:00): 48, An uncorrectable double bit error (DBE) has been detected
CUDA error: an illegal memory access was encountered
RuntimeError: CUDA error: unspecified launch failure
RuntimeError: HIP error: the operation cannot be performed in the present state
gpu.cu:12 cudaErrorECCUncorrectable: uncorrectable ECC error encountered
hipErrorIllegalAddress at line 12
ncclUnhandledCudaError: Call to CUDA function failed.
Memory access fault by GPU node-4 (Agent handle: 0x1) on address 0x2. Reason: Unknown.
HW Exception by GPU node-2 (Agent handle: 0x55) reason :GPU Hang
[12.3] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!
[12.3] amdgpu: uncorrectable hardware errors detected in umc block
[1795263868.2] [vm:12251:0]  ucp_worker.c:1783 UCX  FATAL unexpected: no more lanes
"""
LINES = [line for part in (SIGNALS, MEMORY, LIMITS, ABORTS, DEVICES) for line in part.splitlines()]


def checked(text: str) -> Outcome:
    """The outcome that a check keeps."""
    shown = show("job", text.splitlines())
    results = tuple(judge("xccl", KIND.run, KIND.launch, shown))
    return explained(
        Outcome("xccl", "ucx-1.14", results), [Source.from_text("job", text)], KIND.run
    )


def test_the_record_passes() -> None:
    outcome = checked(KIND.text)
    assert outcome.verdict is Verdict.PASS
    assert not outcome.causes


@pytest.mark.parametrize("line", LINES)
def test_both_judges_fail_the_run(line: str) -> None:
    # In the midst of the output: what follows says that all is well.
    before, end, after = KIND.text.partition("# Out of bounds")
    text = f"{before}{line}\n{end}{after}"
    (found,) = explain([Source.from_text("job", text)], known=KIND.run)
    assert found.verdict is Verdict.FAILED
    assert found.causes
    outcome = checked(text)
    assert outcome.verdict is Verdict.FAILED
    assert outcome.causes
    assert any(row.message and row.verdict is Verdict.FAILED for row in outcome.results)
    assert outcome.sentence().startswith("failed: ")


def test_the_outcome_that_is_kept_is_the_one_that_is_shown(tmp_path: Path) -> None:
    outcome = checked(KIND.text + "\n" + LINES[0])
    outcome.write(tmp_path / "results.json")
    assert Outcome.read(tmp_path / "results.json") == outcome


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.UNJUDGED, Verdict.DEGRADED])
def test_a_finding_makes_any_outcome_worse(verdict: Verdict) -> None:
    outcome = explained(
        Outcome("x", "ucx-1.14", (Result("x", verdict, gb_per_s=1.0),)),
        [Source.from_text("job", "MPI_ABORT was invoked on rank 2\nexit_status=0\n")],
        KIND.run,
    )
    assert outcome.verdict is Verdict.FAILED
    assert [cause["id"] for cause in outcome.causes] == ["rank-died"]
