# SPDX-License-Identifier: MIT
"""What Slurm's word on the end of a job makes of a run that printed nothing wrong."""

from __future__ import annotations

from busbar.slurm.client import Slurm
from busbar.slurm.jobs import parse_end
from tests.cases import cases

# As Slurm 22.05.8 prints it, the fields between left out.
LINE = "JobId=7 JobName=rfm_link_matrix JobState={state} Reason=None ExitCode={code}:0 NodeList=n1"


@cases(
    ("state", "code", "problem"),
    [
        ("COMPLETED", 0, ""),
        ("FAILED", 3, "the job ended with exit status 3"),
        ("TIMEOUT", 0, "Slurm ended the job on n1: TIMEOUT"),
        ("COMPLETING", 0, ""),
        ("NODE_FAIL", 0, "Slurm ended the job on n1: NODE_FAIL"),
        ("OUT_OF_MEMORY", 0, "Slurm ended the job on n1: OUT_OF_MEMORY"),
    ],
)
def test_the_end_of_a_job(state, code, problem):
    end = parse_end(LINE.format(state=state, code=code))
    assert end is not None
    assert end.problem == problem


@cases(
    ("line", "refused", "problem"),
    [
        (
            "JobId=6 JobState=CANCELLED Reason=Resources ExitCode=0:0 RunTime=00:00:00 NodeList=",
            "Slurm ended the job while it waited (Resources): CANCELLED",
            None,
        ),
        (
            "JobId=6 JobState=DEADLINE Reason=None ExitCode=0:0 RunTime=00:00:00 NodeList=(null)",
            "Slurm ended the job before it started: DEADLINE",
            None,
        ),
        (
            "JobId=5 JobState=CANCELLED Reason=None ExitCode=0:15 RunTime=00:00:02 ReqNodeList=n9"
            " NodeList=n4",
            "the job on n4 was ended after 00:00:02 (scancel): CANCELLED; run it again",
            None,
        ),
        (
            "JobId=5 JobState=COMPLETING Reason=TimeLimit ExitCode=0:15 RunTime=00:01:02"
            " NodeList=n[1-2]",
            "",
            "the job on n[1-2] ended after 00:01:02 (TimeLimit), and Slurm still waits for a node:"
            " see scontrol show node",
        ),
        (
            "JobId=5 JobState=COMPLETING Reason=None ExitCode=0:15 RunTime=00:00:09 NodeList=n1",
            "",
            "the job on n1 ended after 00:00:09 (exit status 0, signal 15), and Slurm still waits"
            " for a node: see scontrol show node",
        ),
        (
            "JobId=5 JobState=NODE_FAIL Reason=NodeDown ExitCode=0:0 RunTime=00:01:02 NodeList=n1",
            "",
            "Slurm ended the job on n1 after 00:01:02: NODE_FAIL (NodeDown)",
        ),
    ],
)
def test_a_job_that_slurm_ended(line, refused, problem):
    """A job that never started, or that somebody ended, says nothing of the machine."""
    end = parse_end(line)
    assert end is not None
    assert end.refused == refused
    if not refused:
        assert end.problem == problem


def test_a_node_that_does_not_answer():
    line = LINE.format(state="COMPLETING", code=0) + " RunTime=00:00:09"
    end = parse_end(line)
    assert end is not None
    text = "n1 does not answer Slurm: the job ended after 00:00:09 and stays in COMPLETING;"
    assert end.lost("").startswith(text)
    assert end.lost("n7").endswith("see scontrol show node n7, then drain it")


def test_a_job_that_slurm_has_forgotten(monkeypatch):
    assert parse_end("slurm_load_jobs error: Invalid job id specified") is None
    monkeypatch.setenv("PATH", "")
    assert Slurm().job_end("7") is None
