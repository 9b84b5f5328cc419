# SPDX-License-Identifier: MIT
"""Judges one output of a benchmark: the assertions, then every reading against limit and band."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from busbar.engine.assertions import ASSERTIONS, other_ranks
from busbar.engine.busy import Load, accounts_for, excused, loads
from busbar.engine.expectation import expectation_of
from busbar.engine.identify import gpu_models, nccl_versions, of_output
from busbar.engine.job_output import JobOutput
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Reading
from busbar.engine.results import Result, result_of
from busbar.engine.run import Run, of_launch
from busbar.engine.series import series_of
from busbar.engine.tool import pair_of, tool_of
from busbar.engine.verdicts import Dip, Judged, against_larger, dips, judge_readings
from busbar.parse.events import Check, Start
from busbar.site.model import Gpus
from busbar.verdict import Verdict, combined, worst

# How far the driver's time can excuse a slow latency: it must fit the other times of the run.
_SHORTEST_MESSAGE = 0.9
"""A message between GPUs that uses copies takes at least this share of the time of the shortest
copy: 0.95 to 1.15 on idle and on loaded CPUs (h200x2/gpu_aware_driver_us.log)."""
_UNEVEN = 1.2
"""So much may the CPUs of one rank be slower than the median CPU of the run: 1.17 there."""
_FEW = 3


@dataclass(frozen=True)
class OutputJudgement:
    """The readings of one run with their verdicts."""

    judged: tuple[Judged, ...]
    dips: tuple[Dip, ...] = ()
    """Series of bus bandwidths that fall after their peak."""
    loads: tuple[Load, ...] = ()
    """What other programs did to the run."""

    @property
    def banded(self) -> list[Judged]:
        """The readings that were compared with a band, or are impossible or invalid without."""
        return [each for each in self.judged if each.verdict is not Verdict.UNJUDGED]

    @property
    def waived(self) -> list[Judged]:
        """The readings that are slow at one size of many."""
        return [each for series in self._series() for each in _noise(series)]

    @property
    def excused(self) -> bool:
        """Whether readings are ``unknown`` for what other programs did."""
        dips = any(accounts_for(self.loads, dip.share, dip.alone_us) for dip in self.dips)
        return dips or any(each.verdict is Verdict.UNKNOWN for each in self.judged)

    @property
    def why(self) -> str:
        """Why the first unjudged reading has no band."""
        return next((each.why for each in self.judged if each.why), "")

    def verdict(
        self, stated: Verdict | None, effects: Sequence[Verdict], *, explained: bool
    ) -> Verdict:
        """Return the verdict of the run.

        ``stated`` is the verdict of a check, which judged these readings; ``effects`` are those
        that other evidence in the output justifies. ``explained`` is whether the output shows
        for certain what makes readings slow.
        """
        parts = [stated] if stated else list(self._parts(explained))
        problems = [effect for effect in effects if effect.is_problem]
        return worst([combined(parts or [Verdict.UNJUDGED]), *problems])

    def _parts(self, explained: bool) -> Iterator[Verdict]:
        """Yield the verdicts of the readings, and one for each series of bandwidths that dips.

        A log cannot be measured again, as a check is. So a single slow size among many is taken
        for noise if nothing explains it: a series is degraded if its largest size is slow, or two
        of its sizes are.
        """
        for series in self._series():
            noise = [] if explained else _noise(series)
            # A noisy reading cannot be compared: another reading must pass.
            yield from (Verdict.UNJUDGED if each in noise else each.verdict for each in series)
        for dip in self.dips:
            busy = accounts_for(self.loads, dip.share, dip.alone_us)
            yield Verdict.UNKNOWN if busy else Verdict.DEGRADED

    def _series(self) -> list[list[Judged]]:
        groups: dict[tuple[object, ...], list[Judged]] = defaultdict(list)
        for each in self.judged:
            r = each.reading
            groups[r.kind, r.source, r.target, r.in_place, r.buffers, r.operation].append(each)
        return [sorted(group, key=lambda each: each.reading.nbytes) for group in groups.values()]


def _noise(series: list[Judged]) -> list[Judged]:
    """Return the slow reading of a series if it is the only one, and not the largest."""
    slow = [each for each in series if each.is_slow]
    return slow if len(slow) == 1 and slow[0] is not series[-1] else []


def judge_output(
    run: Run, readings: Iterable[Reading], found: tuple[Load, ...] = ()
) -> OutputJudgement:
    """Judge ``readings`` of ``run`` by what is known of it; ``found`` slowed it down."""
    readings = _plausible(readings)
    judged = excused(against_larger(judge_readings(readings, expectation_of(run))), found)
    return OutputJudgement(tuple(judged), tuple(dips(judged)), found)


def _plausible(readings: Iterable[Reading]) -> list[Reading]:
    """Return the readings; a driver's time that the run contradicts is lowered or left out."""
    readings = [
        replace(each, driver_us=None)
        if each.driver_us and each.driver_us * _SHORTEST_MESSAGE > each.value
        else each
        for each in readings
    ]
    times = [each.driver_us for each in readings if each.driver_us]
    most = _UNEVEN * median(times) if len(times) >= _FEW else None
    return [
        replace(each, driver_us=min(each.driver_us, most)) if each.driver_us and most else each
        for each in readings
    ]


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
    """Yield contradictions: GPUs that the node does not have, or several libraries."""
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
            yield f"the output is from {model!r}, but the site has {gpus.model}"
            return
    backends = {start.backend.upper() for start, _ in output.events_of(Start)}
    for name in sorted({output.device, *backends}):
        if _VENDORS.get(name, gpus.vendor) != gpus.vendor:
            yield f"the output is for {name} buffers, but the site has {gpus.model}"
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
    """A launch with its results and the evidence for causes."""

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
    # What did not run is a failure of `metrics`; that it also printed nothing adds no information.
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
    for one in tested:
        verdict = Verdict.FAILED if one.message else Verdict.PASS
        of_one = replace(correct, pair=one.operation, buffers=one.buffers, message=one.message)
        results.append(replace(of_one, verdict=verdict))
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
        # The sender's host first: comparisons of nodes distinguish directions.
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
