# SPDX-License-Identifier: MIT
"""The output of a job is read once: its causes are found from what was judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from busbar.check import causes
from busbar.check.causes import explained, read_rest
from busbar.engine import collect
from busbar.engine.job_output import JobOutput
from busbar.engine.results import Outcome
from busbar.parse.messages import Pattern
from busbar.parse.text import Source
from busbar.verdict import Verdict
from reframe_checks.bench import REDIRECTED, LaunchesCheck
from tests.cases import cases

from .faults import H200, first
from .kinds import PAIR

BEFORE = ["bash: module: command not found", "loaded"]
DEAD = ["$ mpirun osu_bw", "[vm:12295] *** Process received signal ***", "exit_status=139"]
HEALTHY = ["$ mpirun osu_bw", *first("h200x4-prefix/osu_bw_osu-7.4.log").splitlines()[1:]]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """How often each part of a file is read, by the number of its first line."""
    counts: Counter[tuple[str, int]] = Counter()
    original = collect.read

    def read(source: Source, more: tuple[Pattern, ...] = ()) -> list[JobOutput]:
        counts[Path(source.name).name, source.first] += 1
        return original(source, more)

    monkeypatch.setattr(collect, "read", read)
    monkeypatch.setattr(causes, "read", read)
    return counts


def outcome(directory: Path, output: list[str], errors: list[str]) -> Outcome:
    """What a check with two launches keeps of an output, with a log for the second."""
    for name, lines in (
        ("rfm_job.out", output),
        ("rfm_job.err", errors),
        ("log", ["vm:1:1 [0] NCCL INFO x"]),
    ):
        (directory / name).write_text("".join(f"{line}\n" for line in lines))
    check = SimpleNamespace(
        name="pt2pt",
        planned=[replace(PAIR.launch, logs="none"), replace(PAIR.launch, logs="log")],
        printed=(directory / "rfm_job.out", directory / "rfm_job.err"),
        logs=lambda: [directory / "log"],
        known_run=lambda: H200,
        problems=lambda _: (),
    )
    judged = LaunchesCheck.judgement(check, output, errors)
    assert judged.rest is not None
    whole = Outcome("pt2pt", "ucx-1.14", tuple(judged.results))
    return explained(whole, judged.launches, read_rest(judged.rest), H200)


def test_each_part_is_read_once(reads: Counter[tuple[str, int]], tmp_path: Path) -> None:
    output = [*BEFORE, *DEAD, *HEALTHY]
    found = outcome(tmp_path, output, ["slurmstepd: error: x"])
    after = ("rfm_job.out", len(output) + 1)
    parts = [("rfm_job.out", 1), ("rfm_job.out", 3), ("rfm_job.out", 6), after]
    assert reads == dict.fromkeys([*parts, ("rfm_job.err", 1), ("log", 1)], 1)
    assert found.verdict is Verdict.FAILED
    (cause,) = found.causes
    assert cause.id == "rank-died"
    line = cause.evidence[0]
    assert (Path(line.file).name, line.text) == ("rfm_job.out", output[line.line - 1])


def test_what_two_launches_say_alike_is_said_once(tmp_path: Path) -> None:
    found = outcome(tmp_path, [*DEAD, *DEAD], [])
    assert [(cause.id, cause.evidence[0].line) for cause in found.causes] == [("rank-died", 2)]
    # Both have failed, each with its own reason.
    assert [row.verdict for row in found.results] == [Verdict.FAILED, Verdict.FAILED]


def test_a_fatal_line_beside_the_launches_counts(tmp_path: Path) -> None:
    healthy = [*HEALTHY, *HEALTHY]
    assert not outcome(tmp_path, healthy, []).verdict.is_problem
    fatal = "slurmstepd: error: Detected 1 oom_kill event in StepId=42.0."
    for output, errors in (([fatal, *healthy], []), (healthy, [fatal]), ([*healthy, fatal], [])):
        assert outcome(tmp_path, output, errors).verdict is Verdict.FAILED


@cases(
    ("errors", "passes"),
    [
        ([REDIRECTED, "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus."], False),
        ([REDIRECTED, "rank 3 has died"], False),
        ([REDIRECTED, "epilog: 0 errors found"], True),
        (["stty: 'standard input': Inappropriate ioctl for device", REDIRECTED], True),
    ],
)
def test_what_follows_the_redirection_follows_the_results(
    errors: list[str], passes: bool, tmp_path: Path
) -> None:
    found = outcome(tmp_path, [*HEALTHY, *HEALTHY], errors)
    assert found.verdict.is_problem is not passes
