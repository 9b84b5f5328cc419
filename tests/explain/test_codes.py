# SPDX-License-Identifier: MIT
"""Every code of the closed lists by which a stack reports failures, in each spelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from busbar.explain import Source, explain
from busbar.verdict import Verdict
from tests.files import read_table

from .outputs import ids, nccl_table, run, steps
from .public_logs import is_right

FAILED, DEGRADED = Verdict.FAILED, Verdict.DEGRADED
CODES = read_table(Path(__file__).with_name("codes.yaml"))


def faults() -> Iterator[tuple[str, str, str]]:
    """Yield list, causes and line of each fault."""
    for name, rows in CODES.items():
        for expect, lines in rows["faults"].items():
            for line in lines:
                yield name, expect, line


def harmless() -> Iterator[tuple[str, str]]:
    """Yield list and line of each look-alike."""
    for name, rows in CODES.items():
        for line in rows["harmless"]:
            yield name, line


def test_every_code_leads_to_its_cause() -> None:
    wrong = []
    for name, expect, line in faults():
        found = explain([Source.from_text(name, line + "\n")])
        causes = {cause.id for run in found for cause in run.causes}
        shown = all(cause.evidence[0].text for run in found for cause in run.causes)
        bad = (Verdict.NOT_RUN,) if expect == "job-cancelled" else (FAILED, DEGRADED)
        judged = all(run.verdict in bad for run in found)
        if not (causes and causes <= set(expect.split("|")) and shown and judged):
            wrong.append((line, expect, found))
    assert not wrong


def test_no_look_alike_accuses_anybody() -> None:
    wrong = []
    for name, line in harmless():
        _, causes = is_right("healthy", Source.from_text(name, line + "\n"))
        if causes not in ([], ["bad input"]):
            wrong.append((line, causes))
    assert not wrong


FLUSHED = (
    "NET/IB: Got completion from peer 10.0.0.2<4711> with status=5 opcode=0 len=0 vendor err 244"
)
REMOTE = (
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:9, remote process exited or there"
)
CONSEQUENCES = (
    f"n1:1:2 [0] NCCL WARN {FLUSHED}",
    f"{REMOTE} was a network error",
    "[1.0] [n1:5:0] ucp_ep.c:9 UCX  ERROR request failed: Connection reset by remote peer",
    "RuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:4711",
    "srun: error: n1: tasks 0-3: Exited with exit code 1",
    "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-22T11:00:00 ***",
)
"""What ranks and launchers print after the first failure."""
FIRST = {
    "fabric-timeout": "n1:1:2 [0] NCCL WARN NET/IB: Got completion from peer n2<1> with status=12",
    "gpu-fault": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "out-of-memory": "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.",
    "link-down": "async event: IBV_EVENT_PORT_ERR",
    "cannot-write": "OSError: [Errno 28] No space left on device",
    "collective-mismatch": "*** MPI_ERR_TRUNCATE: message truncated",
}


def test_a_consequence_is_no_cause_beside_the_first_failure() -> None:
    wrong = [
        (cause, consequence, found)
        for cause, line in FIRST.items()
        for consequence in CONSEQUENCES
        if (found := ids(run(f"{line}\n{consequence}\n"))) != {cause}
    ]
    assert not wrong


def test_look_alikes_leave_a_good_run_alone() -> None:
    lines = "".join(f"{line}\n" for _, line in harmless())
    assert not ids(*steps(lines + nccl_table({1 << 28: 337.0, 1 << 30: 356.0})))
