# SPDX-License-Identifier: MIT
"""A line that shows the end of a rank or a broken GPU fails a run, whatever its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar.check.causes import explained, read_rest
from busbar.engine.results import Outcome, Result
from busbar.explain import Source, explain
from busbar.verdict import Verdict

from ..reframe.altered import brief
from ..reframe.faults import kept
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
OTHERS = """\
=>> PBS: job killed: ncpus 9.87 exceeded limit 4 (sum)
=>> PBS: job killed: vmem 9gb exceeded limit 8gb
PBS: Job killed: node failure
TERM_OWNER: job killed by owner.
TERM_SWAP: job killed after reaching LSF swap usage limit.
TERM_ADMIN: job killed by root or LSF administrator.
TERM_EXTERNAL_SIGNAL: job killed by a signal external to LSF.
TERM_UNKNOWN: LSF cannot determine a termination reason.
Exited with signal termination: 9.
Exited by signal 11.
User defined signal 2
flux-shell[0]: FATAL: task 1 (host n1): exited with signal 11
flux-job: task(s) Killed
flux-job: task(s) Bus error
4.2s: job.exception type=oom severity=0 rank 1 oom-killed
1.2s: job.exception type=exec severity=0 Killed
1.2s: job.exception type=cancel severity=0 Canceled
1.2s: flux-shell[0]: stderr: rank 2 crashed with Segmentation fault
Bus error (core dumped)
./run.sh: line 3: 99 Bus error               (core dumped) all_reduce_perf -b 8
./run.sh: line 3: 99 Floating point exception(core dumped) all_reduce_perf -b 8
Illegal instruction (core dumped)
Floating point exception (core dumped)
Trace/breakpoint trap (core dumped)
=   EXIT CODE: 139
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Bus error (signal 7)
[proxy:0:1@n2] HYDU_sock_write (utils/sock/sock.c:256): write error (Broken pipe)
PMIx Abort: rank 3 status 6
PMIX ERROR: UNREACHABLE in file ptl_tcp.c at line 1234
[n1:12] PMIX ERROR: PMIX_ERR_LOST_CONNECTION in file ptl_base_sendrecv.c
srun: error: mpi/pmix: Abort
x1000c0s0b0n0.hsn: rank 3 died from signal 9
x1000c0s0b0n0: rank 1 died from signal 15
pals: error: application terminated: node failure
launch failed on x1000c0s0b0n0: Couldn't forward RPC launch(...) to child
terminate called after throwing an instance of 'c10::Error'
CUDA failure common.cu:20: 'an illegal memory access was encountered'
cudaErrorIllegalAddress
CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered
CUDA_ERROR_LAUNCH_FAILED
HIP error: an illegal memory access was encountered
HIP error: invalid device function
hipErrorLaunchFailure: unspecified launch failure
HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION
NCCL failure common.cu:1005 'unhandled system error'
NCCL error in: ProcessGroupNCCL.cpp:1269, unhandled cuda error, NCCL version 2.19.3
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
vm:1:2 [0] init.cc:1 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'
kernel: Out of memory: Killed process 1234 (all_reduce_perf) total-vm:1kB
[  99.1] Out of memory: Kill process 1234 (all_reduce_perf) score 900 or sacrifice child
amdgpu 0000:c1:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=2
[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout
NVRM: Xid (PCI:0000:06:00): 94, pid=1, Contained: SM (0x1).
NVRM: Xid (PCI:0000:06:00): 74, NVLink: fatal error detected on link 3
NVRM: GPU at PCI:0000:06:00: GPU-x has fallen off the bus
NVRM: RmInitAdapter failed! (0x24:0xffff:1220)
ORTE has lost communication with a remote daemon.
mpirun: abort is already in progress...hit ctrl-c again to forcibly terminate
Primary job  terminated normally, but 1 process returned a non-zero exit code.
prterun detected that one or more processes exited with non-zero status
mpiexec noticed that process rank 0 with PID 1 on node a exited on signal 6 (Aborted).
mpirun has exited due to process rank 0 with PID 0 on node n1 calling "abort".
Fatal error in internal_Send: Other MPI error, error stack:
Fatal error in PMPI_Allreduce: Unknown error class
Assertion failed in file src/mpid/ch4/netmod/ofi/ofi_events.c at line 12: 0
internal ABORT - process 0
forrtl: severe (174): SIGSEGV, segmentation fault occurred
Program received signal SIGSEGV: Segmentation fault - invalid memory reference.
*** stack smashing detected ***: terminated
corrupted double-linked list
malloc(): corrupted top size
munmap_chunk(): invalid pointer
realloc(): invalid next size
AddressSanitizer: heap-use-after-free on address 0x1
pure virtual method called
*** buffer overflow detected ***: terminated
Fatal Python error: Segmentation fault
python3: malloc.c:2617: sysmalloc: Assertion `x' failed.
RuntimeError: NCCL communicator was aborted on rank 1.
torch.distributed.DistBackendError: NCCL error in: x
slurmstepd: error: execve(): all_reduce_perf: Permission denied
srun: error: Timed out waiting for job step to complete
srun: error: eio_handle_mainloop: Abandoning IO 60 secs after job shutdown initiated
srun: error: n2: task 1: Exited with exit code 255
srun: Terminating StepId=42.0
srun: error: Unable to confirm allocation for job 1: Invalid job id specified
[Rank 1] Some NCCL operations have failed or timed out.
segfault at 10 ip 0000 sp 0000 error 4 in libmpi.so
Killed
Terminated
Hangup
Aborted
Segmentation fault
Bus error
Illegal instruction
"""
NODES = """\
EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0
Buffer I/O error on dev nvme0n1, logical block 0, async page read
blk_update_request: I/O error, dev sda, sector 2048
nfs: server nas1 not responding, timed out
LustreError: 11-0: lustre-OST0001-osc: operation ost_write to node 10.0.0.1@o2ib failed: rc = -107
mlx5_core 0000:05:00.0: mlx5_error_sw_reset:267:(pid 1): start
mlx5_core 0000:05:00.0: device's health compromised - reached miss count
mlx5_core 0000:05:00.0 mlx5_0: catastrophic error
mlx5_0: got completion with error: catastrophic error
mlx5: n1: got completion with error:
watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [all_reduce_perf:1]
EDAC MC0: 1 UE memory read error on CPU_SrcID#0
Kernel panic - not syncing: Fatal exception
INFO: task all_reduce_perf:123 blocked for more than 120 seconds.
pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0
"""
LINES = [
    line
    for part in (SIGNALS, MEMORY, LIMITS, ABORTS, DEVICES, OTHERS, NODES)
    for line in part.splitlines()
]
HARMLESS = """\
# Bus error rate monitoring is enabled on this node
NOTICE: the OOM killer is configured to spare this job
Maximum memory limit: 64 GB; time limit 30 minutes
LSF: no TERM signals will be sent before the run limit of 30 minutes
PBS prologue: no jobs killed on this node in 30 days
vm:1:1 [0] NCCL INFO ncclCommAbort is supported
TORCH_NCCL_TRACE_ON_TIMEOUT segfault-safe=1
vm:1:1 [0] NCCL INFO Xid monitoring enabled
Open MPI: MPI_Abort delay is 0 (mpi_abort_delay)
MPI_ERRORS_RETURN is the error handler of this communicator
This is killed_procs=0 oom_kill 0
oom_kill 0
ECC errors: uncorrectable 0, corrected 3
Volatile Uncorr. ECC : 0
Job 42 finished; previous job 41 was cancelled
The core file size limit is 0; no "core dumped" files will be written
kernel.core_pattern = |/usr/lib/systemd/systemd-coredump segfault handler
NCCL version 2.28.9+cuda13.0 : watchdog timeout 600 s
nfs: server nas1 OK
LustreError count on this node: 0
mlx5_core 0000:05:00.0: firmware version: 22.31.1014
mlx5_0: health counter 0, no catastrophic errors
bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)
srun: lua: Submitted job 42
srun: Job 42 scheduled successfully!
slurmstepd: Munge cryptographic signature made by user 0
Lmod has detected the following: module reset. Killed? no.
loaded module: fatal-error-handler/1.2
# Test NCCL failure handling: on
PMIX_MCA_gds=hash # PMIX ERROR: none
# Xid 79 errors since boot: 0
The signal 9 is not caught by this program
Terminating idle shells after 600 s
hostname: oom-killer01 exited with status 0
epilog: job exited with exit code 0
all tasks exited with exit code 0
srun: n1: tasks 0-3: Completed
Warning: Permanently added 'n2' (ED25519) to the list of known hosts.
[n1:12] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168
mlx5_core 0000:05:00.0: Port module event: module 0, Cable plugged
mce: CPU0 supports 20 MCE banks
pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0
EDAC MC0: 0 UE memory errors since boot
EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode
"""


def test_the_record_passes() -> None:
    outcome = kept(KIND, KIND.text)
    assert outcome.verdict is Verdict.PASS
    assert not outcome.causes


def amid(line: str) -> str:
    """The output with a line in its midst: what follows says that all is well."""
    before, end, after = brief(KIND.text).partition("# Out of bounds")
    return f"{before}{line}\n{end}{after}"


def fails(line: str) -> bool:
    """Whether both judges fail the run, with a cause and words."""
    (found,) = explain([Source.from_text("job", amid(line))], known=KIND.run)
    outcome = kept(KIND, amid(line))
    return (
        (found.verdict, outcome.verdict) == (Verdict.FAILED, Verdict.FAILED)
        and bool(found.causes and outcome.causes)
        and any(row.message and row.verdict is Verdict.FAILED for row in outcome.results)
        and outcome.sentence().startswith("failed: ")
    )


def test_both_judges_fail_the_run() -> None:
    assert [line for line in LINES if not fails(line)] == []


def test_words_of_errors_are_no_errors() -> None:
    found = {line: kept(KIND, amid(line)).verdict for line in HARMLESS.splitlines()}
    assert {line: verdict for line, verdict in found.items() if verdict != Verdict.PASS} == {}


def test_the_outcome_that_is_kept_is_the_one_that_is_shown(tmp_path: Path) -> None:
    outcome = kept(KIND, KIND.text + "\n" + LINES[0])
    outcome.write(tmp_path / "results.json")
    assert Outcome.read(tmp_path / "results.json") == outcome


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.UNJUDGED, Verdict.DEGRADED])
def test_a_finding_makes_any_outcome_worse(verdict: Verdict) -> None:
    outcome = explained(
        Outcome("x", "ucx-1.14", (Result("x", verdict, gb_per_s=1.0),)),
        (),
        read_rest([Source.from_text("job", "MPI_ABORT was invoked on rank 2\nexit_status=0\n")]),
        KIND.run,
    )
    assert outcome.verdict is Verdict.FAILED
    assert [cause.id for cause in outcome.causes] == ["rank-died"]
