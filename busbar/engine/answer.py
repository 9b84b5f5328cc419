# SPDX-License-Identifier: MIT
"""Whether an output answers the question of its launch, and no other."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.tool import Contradiction, tool_of
from busbar.parse.events import Check, Idle


def differences(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[str]:
    """Yield where the output differs from the question."""
    yield from late_readings(shown)
    for contradiction in contradictions(shown.facts, launch.bench, launch.ranks):
        yield contradiction.text
    tool = tool_of(launch.bench)
    if tool is None:
        yield "no tool knows this benchmark, so nothing compares its output with the request"
    else:
        yield from tool.answer(launch, shown)


def contradictions(
    output: JobOutput, operation: str | None, ranks: int | None
) -> Iterator[Contradiction]:
    """Yield where one run contradicts itself; of rows and sizes only the first.

    ``operation`` is the collective, or None if it is not known.
    """
    for text, evidence in output.contradictions[:1]:
        yield Contradiction(text, evidence)
    if tool := tool_of(output.tool):
        yield from tool.contradictions(output, operation, ranks)


def late_readings(shown: LaunchOutput) -> Iterator[str]:
    """Yield that readings follow the end of the output, which its process prints last.

    The launcher can mix the lines of ranks, but not those of one rank: each rank of our
    programs prints its readings, then that it is idle.
    """
    facts, own = shown.facts, shown.file
    exit_line = shown.first + len(shown.until_exit)
    ends = [facts.finished, facts.out_of_bounds.evidence if facts.out_of_bounds else None]
    end = min((line.line for line in ends if line and line.file == own), default=exit_line)
    idle = {rank.rank: line.line for rank, line in facts.events_of(Idle)}
    last_idle = max(idle.values(), default=0)
    lines = [(each.evidence, idle.get(each.source or 0, end)) for each in facts.readings]
    lines += [(line, max(last_idle, end)) for _, line in facts.events_of(Check)]
    for line, last in lines:
        if line and (line.file != own or line.line > min(last, exit_line)):
            place = "" if line.file == own else f" of {line.file}"
            yield f"line {line.line}{place} is a reading after the end of the output"
            return
