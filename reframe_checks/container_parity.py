# SPDX-License-Identifier: MIT
"""Is an image as fast as the delivery beside it, on the same node and in the same run?"""

from __future__ import annotations

import copy
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from math import isinf
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import run_after, run_before, variable

from busbar.check.causes import show_launch, source_of
from busbar.delivery.environment import Image
from busbar.engine.job_output import ExitStatus, JobOutput
from busbar.engine.judge import judge
from busbar.engine.launch import LaunchOutput
from busbar.engine.parity import LEAST, Parity, compare, enough
from busbar.engine.reading import Cause, Evidence, Note, Reading
from busbar.engine.results import Result
from busbar.engine.run import Run
from busbar.explain.containers import layer_cause
from busbar.parse.text import Source
from busbar.preflight.layers import bare_origins, differences
from busbar.tools.gpu_aware.answer import wanted
from busbar.units import format_bytes
from busbar.verdict import Verdict

from .bench import versions_of, words_of
from .images import InImage, launcher_outside
from .judging import Judgement, lines_of
from .mpi_program import GpuAwareCheck, Sizes

_SIDES = ("bare", "image")
_Key = tuple[int | None, int | None, str, int]


@rfm.simple_test
class container_parity(GpuAwareCheck):  # noqa: N801 - ReFrame's test names are what users type
    """Bandwidth of every pair by both deliveries in turn; it runs in the one that is no image."""

    descr = "an image against the delivery beside it"
    valid_prog_environs = ["+parity"]
    tags = {"nightly"}
    time_limit = "20m"
    keep_files = [*GpuAwareCheck.keep_files, "*.out", "*.err"]
    parities: dict[_Key, Parity] = {}

    #: How often each delivery runs; 0 for as often as the number of pairs asks for.
    repetitions = variable(int, value=0)

    recorder = ()  # both sides run on the same node in turn

    @property
    def preflighted(self) -> Image:
        """The image that is compared."""
        image = self.environment.compared_image
        assert image
        return image

    @run_after("setup")
    def set_sizes(self) -> None:
        if self.on_gpu:
            self.sizes = self.sizes or Sizes((16 << 20, 256 << 20))
        else:
            self.sizes = self.sizes or Sizes((1 << 20, 4 << 20))
            self.take_best_windows()

    @run_before("run")
    def set_turns(self) -> None:
        """The job: bare, image, bare, image... each with files of its own."""
        self.repetitions = self.repetitions or enough(len(self.keys()))
        image, host = self.preflighted, self.job.launcher
        inside = copy.copy(launcher_outside(host, image))
        mpi_type = image.preflight.launch.mpi_type
        inside.options = [f"--mpi={mpi_type}"] if mpi_type else []
        launchers = {
            "bare": host,
            "image": InImage(inside, image, self.names_for_image),
        }
        words = shlex.split(" ".join([self.executable, *self.executable_opts]))
        program = len(words_of(self.wrapper, "wrapper"))
        turns = [f"for turn in $(seq {self.repetitions}); do"]
        for side in _SIDES:
            if side == "image":
                words[program] = image.programs["gpu_aware"]
            started = f"{launchers[side].run_command(self.job)} {shlex.join(words)}"
            turns.append(f"  {started} >{side}-$turn.out 2>{side}-$turn.err")
            turns.append(f"  echo {side} $turn $?")
        self.prerun_cmds = [*self.prerun_cmds, *turns, "done"]
        self.job.launcher = getlauncher("local")()
        self.executable, self.executable_opts = "true", []

    def judgement(self, output: list[str], errors: list[str]) -> Judgement:
        file, error_file = (source_of(path) for path in self.printed)
        ended: dict[str, ExitStatus] = {}
        for number, line in enumerate(output, 1):
            if status := re.match(r"(?P<turn>\w+ \d+) (?P<code>\d+)$", line):
                code = int(status["code"])
                ended[status["turn"]] = ExitStatus(code, Evidence(file.name, number, line))
        rest: list[Source | JobOutput] = [file, error_file]
        found: list[Result] = []
        turns: list[list[dict[_Key, Reading]]] = []
        used: dict[str, str] = {}
        for turn in range(1, self.repetitions + 1):
            turns.append([])
            for side in _SIDES:
                shown, wrong = self.one_run(side, turn, ended.get(f"{side} {turn}"))
                found += wrong
                if (side, turn) == ("image", 1):  # what the others say is alike
                    rest.append(shown.facts)
                turns[-1].append({_key(reading): reading for reading in shown.readings})
                used = versions_of(shown) or used
        results = [*_once(self.name, found), *self.compared(turns)]
        return Judgement(results, used, rest=rest)

    def one_run(
        self, side: str, turn: int, status: ExitStatus | None
    ) -> tuple[LaunchOutput, list[Result]]:
        """One repetition of one side, and what is wrong with it."""
        printed, said = (Path(self.stagedir, f"{side}-{turn}.{kind}") for kind in ("out", "err"))
        lines, log = (lines_of(path) if path.exists() else [] for path in (printed, said))
        lane = self.environment.lane
        if side == "image":
            lane = self.preflighted.fingerprint.lane
        others = [source_of(said)] if log else []
        shown = show_launch(source_of(printed).name, lines, others)
        shown = replace(shown, text=(*lines, *log))
        shown.facts.exit_status = shown.facts.exit_status or status
        (launch,) = self.planned
        # ``compared`` judges the readings.
        rows = judge(self.name, Run(lane=lane), launch, shown).results
        wrong = [row for row in rows if row.value is None and row.verdict.is_problem]
        return shown, [replace(each, message=f"{side}: {each.message}") for each in wrong]

    def keys(self) -> list[_Key]:
        """Each pair at each size."""
        (launch,) = self.planned
        found = wanted(launch)
        return [(one.source, one.target, one.buffers, one.nbytes) for one in found]

    def compared(self, turns: Sequence[Sequence[dict[_Key, Reading]]]) -> list[Result]:
        """A result for each pair and size."""
        keys = self.keys()
        self.parities = {}
        results = []
        for key in keys:
            both = [(bare.get(key), image.get(key)) for bare, image in turns]
            right = [(b.value, i.value) for b, i in both if b and i and _right(b) and _right(i)]
            row = Result(
                self.name,
                Verdict.FAILED,
                pair=f"{key[0]}->{key[1]}",
                metric="bandwidth",
                buffers=key[2],
                bytes=key[3],
                message=f"{len(right)} of {len(turns)} repetitions have right readings of both",
            )
            if right and len(right) == len(turns):
                bare, image = zip(*right, strict=True)
                parity = self.parities[key] = compare(image, bare, len(keys))
                row = replace(
                    row,
                    verdict=parity.verdict,
                    gb_per_s=parity.image,
                    typical=None if parity.verdict is Verdict.UNKNOWN else parity.bare,
                    message=_sentence(row.pair, key, parity),
                )
            results.append(row)
        return results

    def known_causes(self) -> list[Cause]:
        """Those of the image, and the first layer that differs where it is slower."""
        known = super().known_causes()
        if all(parity.verdict is not Verdict.DEGRADED for parity in self.parities.values()):
            return known
        image, exported = self.preflighted, self.current_environ.env_vars
        outside = {name: " ".join(shlex.split(value)) for name, value in exported.items()}
        forced = "APPTAINERENV_"
        inside = outside | image.settings
        inside |= {
            n.removeprefix(forced): v for n, v in os.environ.items() if n.startswith(forced)
        }
        program = Path(self.built.stagedir, "gpu_aware")
        # Its tail is what the shell makes of the caller's own.
        library_path = outside.get("LD_LIBRARY_PATH", "").partition("${")[0]
        found = differences(
            bare_origins(program, library_path),
            [*image.preflight.libraries, *image.preflight.modules],
            outside,
            inside,
        )
        return [layer_cause(found), *known]

    def remarks(self) -> list[Note]:
        """The worst pair of each size."""
        notes: list[Note] = []
        for nbytes in dict.fromkeys(key[3] for key in self.parities):
            rows = {key: parity for key, parity in self.parities.items() if key[3] == nbytes}
            key, worst = min(rows.items(), key=lambda item: item[1].ratio)
            summary = _sentence(f"{key[0]}->{key[1]}", key, worst)
            summary += f"; the lowest ratio of {len(rows)} pairs"
            notes.append(Note("container-parity", summary))
        return notes

    def add_metric(self, result: Result) -> None:
        """ReFrame is given the ratio, which alone has a reference."""
        ends = result.pair.replace("->", "_to_")
        name = f"parity_{ends}_{result.buffers.replace(' ', '')}_{result.bytes}"
        source, target = map(int, result.pair.split("->"))
        parity = self.parities[source, target, result.buffers, result.bytes or 0]
        self.perf_variables[name] = sn.make_performance_function(sn.defer(parity.ratio), "ratio")
        self.reference[f"{self.current_partition.fullname}:{name}"] = (1, LEAST - 1, None, "ratio")


def _key(reading: Reading) -> _Key:
    return (reading.source, reading.target, reading.buffers, reading.nbytes)


def _right(reading: Reading) -> bool:
    return reading.value > 0 and not reading.wrong


def _sentence(pair: str, key: _Key, parity: Parity) -> str:
    interval = f"{parity.low:.3f} to {parity.high:.3f}, spread {parity.spread:.3f}"
    if not parity.low or isinf(parity.high):
        interval = "too few repetitions for an interval"
    return (
        f"{pair} {key[2]} {format_bytes(key[3])}: image {parity.image:.4g} GB/s, bare"
        f" {parity.bare:.4g}, ratio {parity.ratio:.3f} ({interval})"
    )


def _once(check: str, results: Sequence[Result]) -> list[Result]:
    """Return each message of several repetitions once."""
    counts: dict[tuple[Verdict, str], int] = {}
    for result in results:
        key = (result.verdict, result.message)
        counts[key] = counts.get(key, 0) + 1
    return [
        Result(check, verdict, message=f"{message} ({count} repetitions)")
        for (verdict, message), count in counts.items()
    ]
