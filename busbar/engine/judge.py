# SPDX-License-Identifier: MIT
"""Judges one launch of a benchmark: the assertions, then every reading against limit and band."""

from __future__ import annotations

from dataclasses import dataclass, replace

from busbar.engine.assertions import ASSERTIONS, other_ranks
from busbar.engine.busy import accounts_for, loads
from busbar.engine.identify import of_output
from busbar.engine.judgement import OutputJudgement, judge_output
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.machine import differences
from busbar.engine.reading import Reading
from busbar.engine.results import Result, result_of
from busbar.engine.run import Run, of_launch
from busbar.engine.series import series_of
from busbar.engine.tool import pair_of, tool_of
from busbar.parse.events import Check
from busbar.verdict import Verdict

_OF_THE_START = ("ranks", "placement", "metrics")
"""The assertions that say why a launch has no readings."""


@dataclass(frozen=True)
class JudgedLaunch:
    """A launch with all that is known of it: its results, and what causes are found from."""

    shown: LaunchOutput
    run: Run
    judgement: OutputJudgement
    results: list[Result]
    """What is wrong with the run, then its readings with their verdicts."""


def judge(check: str, run: Run, launch: BenchLaunch, shown: LaunchOutput) -> JudgedLaunch:
    """Judge a launch; ``run`` is what the check knows of its launches."""
    run = of_output(of_launch(run, launch), shown.facts)
    tool = tool_of(launch.bench)
    if tool:
        shown = replace(shown, of_request=tuple(tool.of_launch(launch, shown)))
    readings = [*shown.readings, *(tool.derived(run, shown.readings) if tool else ())]
    judgement = judge_output(run, readings, loads(shown.facts, run))
    results = _results(check, launch, shown, run, judgement)
    return JudgedLaunch(shown, run, judgement, results)


def _results(
    check: str, launch: BenchLaunch, shown: LaunchOutput, run: Run, judgement: OutputJudgement
) -> list[Result]:
    hosts: dict[int | None, str] = {place.rank: place.host for place in shown.ranks}
    where = ",".join(dict.fromkeys(place.host for place in shown.ranks))
    row = Result(check, Verdict.FAILED, where=where, pair=pair_of(launch))
    problems = {name: list(check(launch, shown)) for name, check in ASSERTIONS.items()}
    problems["machine"] = [(Verdict.FAILED, text) for text in differences(run, shown)]
    if problems.get("ranks") and (reason := other_ranks(launch, shown)):
        return [replace(row, message=reason)]
    # What did not run is a failure of `metrics`; that it printed nothing else says no more.
    measured = shown.readings or shown.facts.events_of(Check)
    names = problems if measured or not shown.died else _OF_THE_START
    results = [
        replace(row, verdict=verdict, message=message)
        for name in names
        for verdict, message in problems.get(name, ())
    ]
    tool = tool_of(launch.bench)
    tested = tool.correctness(launch, shown) if tool and "data" in names else ()
    correct = replace(row, metric="correctness")
    results += [
        replace(
            correct,
            verdict=Verdict.FAILED if each.message else Verdict.PASS,
            pair=each.operation,
            buffers=each.buffers,
            message=each.message,
        )
        for each in tested
    ]
    if launch.bands:
        for dip in judgement.dips:
            busy = accounts_for(judgement.loads, dip.share, dip.alone_us)
            verdict = Verdict.UNKNOWN if busy else Verdict.DEGRADED
            results.append(replace(row, verdict=verdict, message=dip.text))
    elif launch.validated and not results:
        # Its rates say nothing; that its data is right does.
        results.append(replace(correct, verdict=Verdict.PASS))
    for each in judgement.judged:
        reading = each.reading
        buffers = reading.buffers or launch.buffers
        # The sender's host first: a comparison of nodes tells directions apart.
        ends = [hosts[end] for end in (reading.source, reading.target) if end in hosts]
        place = ",".join(dict.fromkeys(ends)) or where
        row = replace(row, where=place, pair=_pair(launch, reading), buffers=buffers)
        results.append(replace(result_of(each, row), series=series_of(run, reading)))
    return results


def _pair(launch: BenchLaunch, reading: Reading) -> str:
    if reading.source is not None and reading.source == reading.target:
        return f"{reading.operation} {reading.source}".strip()
    if reading.source is not None and reading.target is not None:
        return f"{reading.source}->{reading.target}"
    if reading.in_place is not None:
        return f"{pair_of(launch)} {'in' if reading.in_place else 'out of'} place"
    return reading.operation or pair_of(launch)
