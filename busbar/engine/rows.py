# SPDX-License-Identifier: MIT
"""Readings from the rows of nccl-tests and ucx_perftest."""

from __future__ import annotations

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence, Reading
from busbar.parse import nccl_tests, numbers, ucx_perftest


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


def add_ucx_row(facts: JobOutput, evidence: Evidence) -> bool:
    """Take the last row of ucx_perftest, whose size only the command line has."""
    row = ucx_perftest.final_row([evidence.text])
    command = next(
        (each for each, _ in reversed(facts.commands) if each.program == "ucx_perftest"), None
    )
    size = numbers.whole(command.option("-s")) if command else None
    if not (command and row and size):
        return False
    facts.tool = facts.tool or "ucx_perftest"
    facts.buffers = "H H" if command.option("-m") in ("", "host") else "D D"
    words = (command.option("-t"), command.environment.get("UCX_NET_DEVICES", ""))
    reading = Reading(
        *("bw", size, row.gb_per_s),
        evidence=evidence,
        buffers=facts.buffers,
        operation=" ".join(filter(None, words)),
    )
    facts.readings.append(reading)
    return True
