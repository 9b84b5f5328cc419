# SPDX-License-Identifier: MIT
"""Readings from the rows of nccl-tests."""

from __future__ import annotations

from busbar.output.job_output import JobOutput
from busbar.output.reading import Evidence, Reading
from busbar.parse import nccl_tests


def add_row(
    facts: JobOutput, row: nccl_tests.Row, evidence: Evidence, in_place: Evidence | None = None
) -> None:
    """Both halves of a row as readings; ``in_place`` is the line of the second half, where it
    has one of its own."""
    facts.rows.append((row, evidence))
    for half, second in ((row.out_of_place, False), (row.in_place, True)):
        if half is None:
            continue
        wrong = half.wrong or 0
        line = in_place if second and in_place else evidence
        facts.readings += [
            Reading("busbw", row.nbytes, half.busbw, wrong, line, in_place=second),
            Reading("algbw", row.nbytes, half.algbw, wrong, line, in_place=second),
        ]
