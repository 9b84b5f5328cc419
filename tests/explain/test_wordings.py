# SPDX-License-Identifier: MIT
"""Every cause is named by the wordings of its tools, wherever in a log they stand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import cycle, islice
from pathlib import Path

import pytest

from busbar.cli import main
from busbar.engine.collect import collect
from busbar.engine.job_output import Occurrence
from busbar.engine.patterns import Patterns
from busbar.errors import BusbarError
from busbar.explain import Explanation, Source, explain
from busbar.explain.catalog import CAUSES
from busbar.explain.page import Example, examples
from busbar.explain.rulebook import PATTERNS
from busbar.parse import severe
from busbar.parse.messages import Pattern
from busbar.parse.tables import beside
from busbar.verdict import Verdict
from tests.cases import some

from .from_pattern import matching
from .mutations import HARMLESS, accusations, healthy
from .outputs import load, of_check

DATA = Path(__file__).parents[1] / "data"
OF_PREFLIGHT = {"image-broken", "image-slow-path"}
"""No output of a run shows these; tests/explain/test_containers.py has them."""
OF_RECORD = {"cpu-busy", "cpu-quota", "gpu-throttled", "nic-busy"}
"""Busbar's own record of a node shows these; tests/engine/test_busy.py has them."""
OF_JOB = {"rank-stopped", "network-path-slow", "tcp-within-node"}
OF_JOB |= {"swapping", "memory-far", "storage-stalled"}
"""`busbar job` names these of a running job; tests/job has them."""
ALL = [(cause, each) for cause, rows in examples().items() for each in rows]
PREFIXES = {
    "none": "",
    "srun": "3: ",
    "tag-output": "[1,3]<stderr>: ",
    "prrte": "[prterun-n1-900@1,3]<stdout>: ",
    "hydra": "[3] ",
    "time": "2026-11-21T07:23:34.512345Z ",
    "journal": "Nov 21 07:23:34 gpu01 slurmd[4711]: ",
    "kubectl": "[pod/train-worker-1/pytorch] ",
    "ray": "(RayTrainWorker pid=4711, ip=10.0.0.7) ",
    "torchrun": "[default3]:",
}


def explained(example: Example, text: str) -> list[Explanation]:
    sources, engine = [Source.from_text("job.out", text)], example.engine or None
    if example.verdict:
        return of_check(sources, Verdict(example.verdict), example.site, engine)
    return explain(sources, site=load(example.site) if example.site else None, engine=engine)


def named(found: list[Explanation]) -> set[str]:
    return {cause.id for run in found for cause in run.causes}


def test_every_cause_has_two_wordings() -> None:
    assert set(CAUSES) - OF_PREFLIGHT - OF_RECORD - OF_JOB == set(examples())
    for cause, rows in examples().items():
        assert len({each.tool for each in rows}) >= 2, cause
        assert len({each.text for each in rows}) == len(rows), cause


def test_every_wording_names_its_cause() -> None:
    wrong = []
    for cause, example in ALL:
        found = explained(example, example.text)
        if (
            cause not in named(found)
            or not all(run.verdict.is_problem for run in found)
            or not all(each.evidence and each.remedy for run in found for each in run.causes)
        ):
            wrong.append((cause, example.tool, named(found)))
    assert not wrong


# ---- in the middle of other output
@cache
def unrelated() -> list[str]:
    """40 lines that a job really printed, none of them of a table."""
    log = (DATA / "h200x4/nccl_healthy_a.log").read_text().splitlines()
    return list(islice(cycle(line for line in log if " NCCL INFO " in line), 40))


MESSAGES = [(c, e) for c, e in ALL if CAUSES[c].seen and not (e.site or "\n#" in f"\n{e.text}")]
"""Those that need no table."""


def test_a_wording_is_found_among_other_lines() -> None:
    """Prefixes take turns; the patterns themselves are tried with every one."""
    around = unrelated()
    assert len(MESSAGES) > 100
    missed = []
    for prefix, (cause, example) in zip(cycle(PREFIXES.values()), MESSAGES, strict=False):
        if example.text.startswith("{"):
            continue  # a document is a file of its own
        lines = [*around[:20], *example.text.splitlines(), *around[20:]]
        text = "".join(f"{prefix}{line}\n" for line in lines)
        if cause not in named(explained(example, text)):
            missed.append((cause, example.tool))
    assert not missed


EVERY = Patterns(PATTERNS)
EXAMPLES: list[str] = [
    text for row in beside(severe.__file__)["forms"].values() for text in row["examples"]
]
"""One at least of each expression of a severe line."""
TOGETHER = 100
"""Patterns that are tried in one text."""


def _line(row: Pattern) -> str:
    """Return a line that a pattern matches, as the tool would print it."""
    if row.excused:
        mine = (each for each in EXAMPLES if row.regex.search(each))
        return next(each for each in mine if not row.excused(each.encode()))
    text = matching(row.regex, row.needle.decode())
    if row in EVERY.unprefixed:
        return text
    head = "INFO" if any(text.startswith(each.decode()) for each in row.info) else "WARN"
    return f"n1:4711:4720 [0] NCCL {head} {text}"


def _messages(lines: Sequence[str], prefix: str) -> dict[str, list[Occurrence]]:
    """Return the messages of each kind in the middle of other lines."""
    around = unrelated()
    text = "".join(f"{prefix}{line}\n" for line in [*around[:20], *lines, *around[20:]])
    found: dict[str, list[Occurrence]] = defaultdict(list)
    for each in collect([Source.from_text("x", text)], PATTERNS):
        for kind in each.messages:
            found[kind] += each.seen(kind)
    return found


def test_every_pattern_is_found_among_other_lines() -> None:
    every = [row for row in (*EVERY.warnings, *EVERY.unprefixed) if row not in EVERY.unclear]
    rows = [(row, _line(row)) for row in every]  # unclear lines need a benchmark before them
    assert len(rows) > 500
    missed = []
    for turn, prefix in enumerate(PREFIXES.values()):
        before, mine = _messages([], prefix), some(rows[turn % 4 :], 4)
        for start in range(0, len(mine), TOGETHER):
            tried = mine[start : start + TOGETHER]
            together = _messages([line for _, line in tried], prefix)
            for at, (row, line) in enumerate(tried, 21):
                if any(each.evidence.line == at for each in together[row.kind]):
                    continue
                # Another message can end a run or a table, or have the same fields.
                alone = _messages([line], prefix)[row.kind]
                if sum(x.count for x in alone) <= sum(x.count for x in before[row.kind]):
                    missed.append((prefix, row.kind, line))
    assert not missed


# ---- the page of a cause
def test_the_page_of_a_cause(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--cause", "shm-too-small"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("## shm-too-small\n")
    assert "--shm-size" in page
    assert "https://github.com/NVIDIA/nccl/issues/290" in page


def test_the_page_of_no_cause(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--cause", "shm-to-small"]) == 2
    assert "shm-too-small" in capsys.readouterr().err
    assert main(["explain"]) == 2
    assert "--cause" in capsys.readouterr().err


# ---- healthy runs
def test_mutated_healthy_runs_accuse_nobody() -> None:
    assert len(healthy()) > 20
    assert not list(accusations(some(range(100), 4), seed=1))


def test_lines_with_words_of_faults_accuse_nobody() -> None:
    for line in HARMLESS:
        try:
            found = explain([Source.from_text("job.out", line + "\n")])
        except BusbarError:
            continue  # nothing in it is known
        assert not named(found), line
        assert not any(run.verdict.is_problem for run in found), line
