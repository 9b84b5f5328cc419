# SPDX-License-Identifier: MIT
"""An outcome that a check leaves is validated, and belongs to the case that ran."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busbar.check.outcome import EndedJob, end_of, outcome_of
from busbar.document import to_json
from busbar.engine.results import DIGEST, Outcome, Result, digest_of
from busbar.slurm.jobs import JobEnd
from busbar.verdict import Verdict, exit_status
from tests.cases import cases

ROW = Result("x", Verdict.PASS, metric="bandwidth", bytes=1, gb_per_s=1.0)
BANDED = replace(ROW, low=0.5, high=2.0)
LEFT = Outcome("x", "ucx-1.14", (BANDED,), "gpu", "spack", "spack")
SITE: Any = None


@cases(
    ("more", "band", "share"),
    [
        ({"low": 40.0, "high": 60.0, "limit": 100.0, "gb_per_s": 50.0}, "40 .. 60", 0.5),
        ({"low": 40.0, "gb_per_s": 50.0}, "", None),
        ({"gb_per_s": None, "us": 5.0, "limit": 100.0}, "", None),
        ({"metric": "latency", "us": 5.0, "low": 1e-9, "high": 7.0}, "up to 7", None),
    ],
)
def test_band_and_share_of_the_limit(more: dict[str, Any], band: str, share: float) -> None:
    row = replace(ROW, **more)
    assert (row.band_text, row.share_of_limit) == (band, share)


def read(directory: Path, text: str, digest: str | None = None) -> Outcome:
    file = directory / "results.json"
    file.write_text(text)
    case = {
        DIGEST: digest_of(file) if digest is None else digest,
        **dict.fromkeys(("outputdir", "stagedir"), str(directory)),
        **dict.fromkeys(("name", "display_name"), "x"),
        "partition": "gpu",
        "environ": "spack",
        "result": "pass",
        "fail_phase": None,
    }
    return outcome_of(case, SITE, "ucx-1.14", Path())


def left(**changes: Any) -> str:
    document = to_json(LEFT)
    row = changes.pop("row", {})
    document |= changes
    for each in document["results"]:
        each.update(row)
    return json.dumps(document)


def test_what_a_check_writes_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, left()) == LEFT


def test_an_older_document_is_read(tmp_path: Path) -> None:
    document = json.loads(left())
    for row in document["results"]:
        del row["cpu_wait_share"]
    assert read(tmp_path, json.dumps(document)) == LEFT


@cases(
    "text",
    [
        *("", "[]", "{}", "null", '{"verdict": "pass"}', "[" * 9999),
        *(left(check="y"), left(partition="other"), left(environment="other"), left(more=1)),
        *(left(row={"verdict": "good"}), left(row={"gb_per_s": "fast"}), left(results=[])),
        *(left(row={"gb_per_s": None}), left(row={"gb_per_s": -1}), left(row={"gb_per_s": 0})),
        *(left(causes=3), left(notes=[1]), left(versions={"mpi": []})),
    ],
)
def test_anything_else_fails(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).verdict is Verdict.FAILED


@pytest.mark.parametrize("digest", ["", "0" * 64])
def test_the_file_of_another_test_or_run_fails(tmp_path: Path, digest: str) -> None:
    """A test of others leaves no digest; an earlier run left another."""
    kept = read(tmp_path, left(), digest)
    assert kept.verdict is Verdict.FAILED
    assert "was not written by this run of the check" in kept.results[0].message


def test_right_data_is_no_judgement_of_rates() -> None:
    correct = Result("x", Verdict.PASS, metric="correctness")
    rate = replace(ROW, verdict=Verdict.UNJUDGED)
    assert replace(LEFT, results=(correct, rate)).verdict is Verdict.UNJUDGED
    assert replace(LEFT, results=(correct, rate, ROW)).verdict is Verdict.PASS
    assert replace(LEFT, results=(correct,)).verdict is Verdict.PASS


def ended(state: str, nodes: str = "n1", **more: Any) -> EndedJob:
    return EndedJob("x", end=JobEnd("JobId=1", state, 0, nodes, run_time="00:01:00"), **more)


@cases(
    ("job", "verdicts", "says"),
    [
        (EndedJob("x", 0), ["pass"], ""),
        (EndedJob("x", 3), ["pass", "failed"], "the job ended with exit status 3"),
        (ended("COMPLETED"), ["pass"], ""),
        (ended("NODE_FAIL"), ["failed", "pass"], "Slurm ended the job on n1"),
        (ended("TIMEOUT"), ["failed", "pass"], "TIMEOUT"),
        (ended("TIMEOUT", starved=True), ["unknown", "pass"], "TIMEOUT"),
        (ended("COMPLETING", held="n1"), ["failed", "pass"], "n1 does not answer Slurm"),
        (ended("PENDING", ""), ["failed", "pass"], "put the job back into its queue: PENDING"),
        (ended("REQUEUE_HOLD", ""), ["failed", "pass"], "its queue: REQUEUE_HOLD"),
    ],
)
def test_the_end_of_a_job_counts(job: EndedJob, verdicts: list[str], says: str) -> None:
    found = end_of(job, [ROW])
    assert [row.verdict for row in found] == verdicts
    assert any(says in row.message for row in found)


def test_what_a_program_could_not_print_is_not_its_fault() -> None:
    missing = Result("x", Verdict.FAILED, message="no reading at 1 MiB")
    wrong = Result("x", Verdict.FAILED, metric="correctness", message="9 bytes arrived wrong")
    kept = end_of(ended("TIMEOUT", starved=True), [missing, wrong, ROW])
    assert kept[1:] == [wrong, ROW]
    assert len(end_of(ended("FAILED"), [missing])) == 1


@pytest.mark.parametrize("waited", [False, True])
def test_a_job_that_somebody_ended_did_not_run(waited: bool) -> None:
    (row,) = ended("CANCELLED", nodes="" if waited else "n1", waited=waited).refused
    assert row.verdict is Verdict.NOT_RUN
    assert ("after --max-pending" in row.message) == waited
    assert not ended("NODE_FAIL").refused
    assert not ended("REQUEUED", nodes="").refused


def test_bands_can_be_required() -> None:
    assert [exit_status(v) for v in (Verdict.PASS, Verdict.UNJUDGED, Verdict.DEGRADED)] == [
        0,
        3,
        1,
    ]
    assert exit_status(Verdict.UNJUDGED, require_bands=True) == 1
    assert exit_status(Verdict.PASS, require_bands=True) == 0
