# SPDX-License-Identifier: MIT
"""What a healthy record of a check and its faults are made of; `kinds.py` puts them together."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from busbar import site as sites
from busbar.check.causes import explained, show_launch
from busbar.engine.assertions import Problem
from busbar.engine.collect import split
from busbar.engine.judge import JudgedLaunch, judge
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.reading import Reading
from busbar.engine.results import Outcome
from busbar.engine.run import Run
from busbar.explain.core import explain_output
from busbar.explain.model import Explanation
from busbar.tools.ucx_perftest.parse import final_row

DATA = Path(__file__).parents[1] / "data"
SITE = sites.load("h200x4")
CRAY = sites.load("mi250x-cray")
MI300X = sites.load("mi300x")
SIZE = 1 << 24
GIB = 1 << 30

Break = Callable[[str], str]
H200 = Run(
    site=SITE,
    partition="gpu",
    lane="ucx-1.14",
    environment=sites.environment(SITE, lane="ucx-1.14"),
)


H100 = Run(
    site=(PAIR := sites.load(DATA / "sites/h100x2")),
    partition="node",
    lane="ucx-1.14",
    environment=sites.environment(PAIR, lane="ucx-1.14"),
)
"""The machine of ``h100x2-checks``, whose records are of the programs of today."""


def read(name: str) -> list[str]:
    """The lines of a record."""
    data = (DATA / name).read_bytes()
    return (gzip.decompress(data) if name.endswith(".gz") else data).decode().splitlines()


def first(name: str) -> str:
    """The first launch of a record."""
    return "\n".join(split(read(name))[0])


def placed(name: str, ranks: int, *hosts: str) -> str:
    """A record without a word of where its ranks were, which `placed.sh` would have said."""
    per_node = ranks // len(hosts)
    lines = [
        f'{{"placed": {{"rank": {n}, "ranks": {ranks}, "node_rank": {n % per_node}, "host":'
        f' "{hosts[n // per_node]}", "pid": {n + 1}, "cpus": "0", "visible": ""}}}}'
        for n in range(ranks)
    ]
    text = (DATA / name).read_text(errors="backslashreplace")
    return "\n".join([*lines, *[x for x in text.splitlines() if not x.startswith("$ ")]])


NONCE = "6a09e667f3bcc908"
"""Instead of the one that each recorded job had."""


def of_job(name: str) -> str:
    """The record of a check of one of our programs; of NCCL's log, only the ways of the data."""
    lines = [line for line in read(name) if "NCCL INFO" not in line or " via P2P" in line]
    return re.sub(r'(?<="nonce": ")[0-9a-f]+', NONCE, "\n".join(lines))


def scaled(pattern: str, by: float) -> Break:
    """The numbers in the groups of ``pattern`` times ``by``."""

    def change(text: str) -> str:
        def scale(match: re.Match[str]) -> str:
            whole = match[0]
            for group in range(match.lastindex or 0, 0, -1):
                at, end = (place - match.start() for place in match.span(group))
                value = float(match[group]) * by
                whole = f"{whole[:at]}{value:{'.4f' if value > 1 else '.9f'}}{whole[end:]}"
            return whole

        return re.sub(pattern, scale, text, flags=re.MULTILINE)

    return change


def rows_scaled(by: float, *sizes: int) -> Break:
    """The rates of a table of nccl-tests times ``by``, or those of these sizes, and their mean."""

    def change(text: str) -> str:
        lines = []
        rates: list[float] = []
        for printed in text.splitlines():
            line, words = printed, printed.split()
            row = len(words) == 13 and words[0].isdigit() and words[2] == "float"
            if row and (not sizes or int(words[0]) in sizes):
                for at, factor in ((5, 1 / by), (6, by), (7, by), (9, 1 / by), (10, by), (11, by)):
                    words[at] = f"{float(words[at]) * factor:.4f}"
                line = f"  {'  '.join(words)}"
            if len(words) == 13 and words[2] == "float":
                rates += [float(words[7]), float(words[11])]
            elif "Avg bus" in line and rates:
                line = f"# Avg bus bandwidth    : {sum(rates) / len(rates):g}"
            lines.append(line)
        return "\n".join(lines)

    return change


def events_scaled(by: float, size: str = r"\d+") -> Break:
    """The rates of our own programs at these sizes times ``by``."""
    row = rf'"bytes": {size}, (?:"cpu_wait_share": [^,]+, )?"gb_per_s": '
    faster = scaled(rf'{row}([\d.]+)(?:, "algbw_gb_per_s": ([\d.]+))?', by)
    slower = scaled(rf'{row}.*"(?:us|seconds)": ([\d.]+)', 1 / by)
    return lambda text: slower(faster(text))


def replaced(old: str, new: str) -> Break:
    return lambda text: text.replace(old, new)


@dataclass(frozen=True)
class Kind:
    """A healthy record of one kind of check, and how it is broken."""

    launch: BenchLaunch
    text: str
    run: Run
    """What the check knows of its launches."""
    breaks: dict[str, Break]
    derive: Callable[[LaunchOutput], list[Reading]] = lambda shown: []
    also: Callable[[BenchLaunch, LaunchOutput], Iterator[Problem]] = lambda launch, shown: iter(())
    """What the check asks beside what all are asked."""


def kept(kind: Kind, text: str, versions: Mapping[str, str] | None = None) -> Outcome:
    """What `busbar check` keeps of an output."""
    judged = judged_launch(kind, text)
    outcome = Outcome("check", "ucx-1.14", tuple(judged.results))
    return explained(outcome, [judged], (), kind.run, versions=versions)


def judged_launch(kind: Kind, text: str) -> JudgedLaunch:
    """What is known of an output once it was judged."""
    shown = show_launch("job", text.splitlines())
    shown.facts.readings += kind.derive(shown)
    return judge("check", kind.run, kind.launch, shown)


def of_both(kind: Kind, text: str) -> tuple[Outcome, Explanation]:
    """What `busbar check` keeps of an output, and what `busbar explain` says of it."""
    judged = judged_launch(kind, text)
    outcome = explained(Outcome("check", "", tuple(judged.results)), [judged], (), kind.run)
    return outcome, explain_output(judged.shown.facts, kind.run, asked={})


def perftest(shown: LaunchOutput) -> list[Reading]:
    row = final_row(shown.text)
    return [Reading("bw", 1 << 26, row.gb_per_s)] if row else []
