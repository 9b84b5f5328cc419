# SPDX-License-Identifier: MIT
"""Judges one launch of a benchmark: the assertions, then every reading against limit and band."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from busbar.engine.assertions import ASSERTIONS, other_ranks
from busbar.engine.busy import accounts_for, loads
from busbar.engine.identify import gpu_models, nccl_versions, of_output
from busbar.engine.job_output import JobOutput
from busbar.engine.judgement import OutputJudgement, judge_output
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Reading
from busbar.engine.results import Result, result_of
from busbar.engine.run import Run, of_launch
from busbar.engine.series import series_of
from busbar.engine.tool import pair_of, tool_of
from busbar.parse.events import Check, Start
from busbar.site.model import Gpus
from busbar.verdict import Verdict

_VENDORS = {"CUDA": "nvidia", "ROCM": "amd", "HIP": "amd", "SYCL": "intel"}
"""By the memory that the title of a table names, and the back end of our programs."""
_NVIDIA_CHIP = re.compile(r"(?i)\b(?P<word>[A-Z]{1,3}\d{1,3}[A-Z]?|\d{3,4}(?!\d| ?GB))\b")
"""H200, GB200, L40S, V100, and the number of an RTX 6000."""
_FORM = re.compile(r"(?i)(?P<word>PCIe|NVL(?!ink)|SXM|HBM)")
_SXM = {"HBM": "SXM"}
"""The driver names the memory of an SXM module since the H100."""
_MEMORY = re.compile(r"(?i)\b(?P<word>\d{2,3}) ?GB\b")
_AMD_MODEL = re.compile(r"(?i)\bMI\d{2,4}[A-Z]{0,2}\b")


def differences(run: Run, shown: LaunchOutput) -> Iterator[str]:
    """Yield where the output is of other GPUs than the node's, or of several libraries."""
    gpus = run.site.node_type(run.partition).gpus if run.site else None
    if gpus:
        yield from _of_gpus(gpus, shown.facts)
    lane = re.match(r"ucx-(?P<version>\d+\.\d+)$", run.lane or "")
    for start, _ in shown.facts.events_of(Start):
        if lane and start.ucx and not start.ucx.startswith(f"{lane['version']}."):
            yield f"requested lane {run.lane}, but UCX {start.ucx} was loaded"
    versions = nccl_versions(shown.facts)
    if len(versions) > 1:
        yield f"the output names NCCL {' and '.join(sorted(versions))}"


def _of_gpus(gpus: Gpus, output: JobOutput) -> Iterator[str]:
    for model in sorted(gpu_models(output)):
        if not _same_model(gpus, model):
            yield f"the output is of {model!r}, the site has {gpus.model}"
            return
    backends = {start.backend.upper() for start, _ in output.events_of(Start)}
    for name in sorted({output.device, *backends}):
        if _VENDORS.get(name, gpus.vendor) != gpus.vendor:
            yield f"the output is of {name} buffers, the site has {gpus.model}"
            return


def _same_model(gpus: Gpus, name: str) -> bool:
    """Whether a name means these GPUs.

    NVIDIA's driver gives every tool the same name, which a site may shorten: its chip must be the
    same, its form (no word is SXM), and the size of its memory where both have one. The names of
    AMD's tools differ in more than the model, which some of them lack.
    """
    if gpus.vendor == "nvidia":
        names = (name, gpus.model)
        chips = {_first(_NVIDIA_CHIP, each) for each in names}
        forms = {_first(_FORM, each) or "SXM" for each in names}
        memories = {_first(_MEMORY, each) for each in names} - {""}
        forms = {_SXM.get(form, form) for form in forms}
        return len(chips) == 1 and len(forms) == 1 and len(memories) < 2
    models = {each.upper() for each in _AMD_MODEL.findall(name)}
    expected = {each.upper() for each in _AMD_MODEL.findall(gpus.model)}
    if not models:
        return "NVIDIA" not in name.upper()
    return bool(models & expected) or not expected


def _first(pattern: re.Pattern[str], name: str) -> str:
    match = pattern.search(name)
    return match["word"].upper() if match else ""


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
