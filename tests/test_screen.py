# SPDX-License-Identifier: MIT
"""The screen of a run, from recorded outputs, at the widths of a small and a large terminal.

``GOLDEN=write`` in the environment writes the texts again; the change is then reviewed by eye.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.check.causes import explained, show_launch
from busbar.check.document import document_of
from busbar.check.listing import Match, needs, skips
from busbar.check.snapshot import of_document
from busbar.engine.collect import split
from busbar.engine.judge import judge
from busbar.engine.launch import BenchLaunch, powers
from busbar.engine.results import Outcome, Result
from busbar.engine.run import Run
from busbar.plain import Column
from busbar.report.page import page_of
from busbar.report.sections import Frame
from busbar.report.terminal import print_run
from busbar.terminal import Terminal
from busbar.verdict import Verdict, combined
from tests.cases import cases

from .engine.test_launches import ALL_REDUCE, lone_process

ROOT = Path(__file__).parent
DATA = ROOT / "data/h200x4"
GOLDEN = ROOT / "golden/screen"
MIB = 1 << 20
SITE = sites.load("h200x4")
RUN = Run(
    site=SITE,
    partition="gpu",
    lane="ucx-1.14",
    harness="nccl-tests",
    environment=sites.environment(SITE, lane="ucx-1.14"),
)
OSU_BW = BenchLaunch(
    bench="osu_bw",
    command=("osu_bw", "-m", "4194304:268435456", "D", "D"),
    ranks=2,
    sizes=powers(4 * MIB, 256 * MIB),
    gpus=(0, 1),
    buffers="D D",
    placed=False,
)
OSU_LATENCY = replace(OSU_BW, bench="osu_latency", sizes=(8,))


def outcome(check: str, launch: BenchLaunch, lines: Sequence[str], run: Run = RUN) -> Outcome:
    """What a check makes of an output."""
    judged = judge(check, run, launch, show_launch("job.out", lines))
    whole = Outcome(check, "ucx-1.14", tuple(judged.results), "gpu", "prefix-ucx-1_14", "prefix")
    return explained(whole, [judged], (), run)


def recorded(name: str) -> list[str]:
    lines = split((DATA / name).read_text().splitlines())[0]
    return [line for line in lines if not line.startswith("exit_status")] + ["exit_status=0"]


def all_reduce(lines: Sequence[str]) -> Outcome:
    name = "xccl %size_set=quick %collective=all_reduce %ranks=0"
    return outcome(name, ALL_REDUCE, lines)


def pair() -> Outcome:
    name = "pt2pt %size_set=quick %bench=osu_bw %buffers=D D"
    return outcome(name, OSU_BW, recorded("osu_bw_healthy_a.log"))


def unjudged() -> Outcome:
    rows = [
        Result("memory %size_set=quick", Verdict.UNJUDGED, "vm", f"one_core {core}", "bandwidth")
        for core in range(2)
    ]
    rows = [replace(row, buffers="H", bytes=64 * MIB, gb_per_s=11.5) for row in rows]
    return Outcome("memory %size_set=quick", "ucx-1.14", tuple(rows), "host", "wheels-ucx-1_14")


def latency() -> Outcome:
    """Its limit is the transfer of eight bytes."""
    row = Result("link_matrix", Verdict.PASS, "vm", "0->1", "latency", "D D", 8, us=2.1)
    row = replace(row, limit=1.8e-5, low=1.8e-5, typical=2.0, high=4.0)
    return Outcome("link_matrix", "ucx-1.14", (row,), "gpu", "prefix-ucx-1_14")


SCREENS = {
    "healthy": lambda: [pair(), all_reduce(recorded("nccl_healthy_a.log")), latency()],
    "degraded": lambda: [pair(), all_reduce(recorded("nccl_channels_1.log"))],
    "failed": lambda: [
        pair(),
        all_reduce(["$ mpirun -n 4 all_reduce_perf", *NO_MPI, "exit_status=0"]),
    ],
    "unjudged": lambda: [unjudged()],
}
NO_MPI = [line for process in range(4) for line in lone_process(process)]
SKIPPED = [
    *[Match(f"osu {n}", "", (), (), (), "environment lacks +osu", ("+osu",)) for n in range(3)],
    Match("gpu_aware_nodes", "", (), (), (), "partition gpu lacks +remote", ("+remote",)),
]


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(
    outcomes: Sequence[Outcome],
    stream: io.StringIO,
    *,
    verbose: bool = False,
    skipped: Sequence[Match] = SKIPPED,
) -> list[str]:
    """The lines, without colours."""
    document = document_of(SITE.name, "ucx-1.14", outcomes, skipped)
    print_run(
        combined(each.verdict for each in outcomes),
        "",
        outcomes,
        skipped,
        Terminal(stream),
        headline=page_of(Frame(of_document(document), SITE)).headline,
        seconds=12.3,
        report=Path("busbar-report/report.html"),
        verbose=verbose,
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", SCREENS)
def test_the_screen(name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    outcomes = SCREENS[name]()
    lines = screen(outcomes, Tty())
    golden = GOLDEN / f"{name}-{width}.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text("\n".join(lines) + "\n")
    assert lines == golden.read_text().splitlines()
    assert (
        max(len(line) for line in lines if line.startswith(("check ", "pt2pt ", "xccl ", "link_")))
        <= width
    )
    assert lines[0].startswith(f"{combined(each.verdict for each in outcomes)}: ")
    assert lines[-1].endswith("; report: busbar-report/report.html")
    assert "%" not in "".join(re.sub(r"\d+(\.\d+)?%", "", line) for line in lines)


@cases("width", [20, 40, 60, 79, 80, 81, 100, 120])
def test_no_line_of_the_table_is_broken(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    outcomes = SCREENS["healthy"]()
    lines = screen(outcomes, Tty())[1:5]
    assert [line.split()[0].rstrip("…") for line in lines[:2]] == ["check", "pt2pt"]
    assert all("pass" in line for line in lines[1:])
    assert max(map(len, lines)) <= max(width, 3 * 8 + 4)


def test_without_a_terminal_the_table_is_as_wide_as_its_content(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    long = replace(pair(), check="a_check_with_a_name_of_its_own" * 4)
    lines = screen([long], io.StringIO())
    assert "a_check_with_a_name_of_its_own" * 4 in lines[2]
    assert {"limit", "share", "reading"} <= set(lines[1].split())


def test_a_row_is_the_worst_reading_of_its_check():
    slow, fast = (replace(unjudged().results[0], verdict=Verdict.PASS) for _ in range(2))
    rows = [
        replace(slow, gb_per_s=5.0, low=4, typical=10, high=12, limit=20, pair="0->1"),
        replace(fast, gb_per_s=9.0, low=4, typical=10, high=12, limit=20, pair="1->0"),
        replace(fast, metric="latency", gb_per_s=None, us=2.0, low=1, typical=2, high=9, limit=1),
    ]
    shown = screen([replace(unjudged(), results=tuple(rows))], io.StringIO())
    assert "0->1" in shown[2]
    assert "5 GB/s" in shown[2]
    degraded = replace(rows[1], verdict=Verdict.DEGRADED, message="below")
    shown = screen([replace(unjudged(), results=(*rows, degraded))], io.StringIO())
    assert shown[3].endswith("degraded")
    assert "9 GB/s" in shown[3]
    one, every = unjudged().results  # without a band, the slowest; a latency, the longest
    slowest = replace(one, gb_per_s=21.25), replace(every, gb_per_s=5.557, pair="all_cores")
    longest = [replace(row, metric="latency", gb_per_s=None, us=row.gb_per_s) for row in slowest]
    for rows, value in ((slowest, "5.557 GB/s"), (longest, "21.25 us")):
        assert value in screen([replace(unjudged(), results=tuple(rows))], io.StringIO())[2]


def test_limits_of_picoseconds_are_not_shown():
    lines = screen([latency()], io.StringIO(), verbose=True)
    assert "1.8e-05" not in "\n".join(lines)
    assert "up to 4" in lines[2]


def test_verbose_shows_all_rows_and_skips():
    lines = screen([pair()], io.StringIO(), verbose=True)
    assert sum(line.startswith("pt2pt osu_bw DD ") for line in lines) == 7
    assert "skipped gpu_aware_nodes: partition gpu lacks +remote" in lines


def test_a_reason_and_a_cause_of_several_checks_is_shown_once():
    lines = ["$ mpirun -n 4 all_reduce_perf", *NO_MPI, "exit_status=0"]
    name = "xccl %size_set=quick %collective={} %ranks=0"
    one = all_reduce(lines)
    several = [
        replace(one, check=name.format(c))
        for c in ("all_reduce", "all_gather", "alltoall", "broadcast", "sendrecv")
    ]
    shown = screen(several, io.StringIO())
    reasons = [line for line in shown if line.startswith("failed ")]
    (reason,) = reasons
    assert reason.startswith(
        "failed xccl all_reduce, xccl all_gather, xccl alltoall and 2 more: each of 4 processes"
    )
    assert sum("Use a launcher that speaks" in line for line in shown) == 1


def test_the_environments_of_a_check_are_told_apart():
    spack = replace(pair(), environment="spack-ucx-1_14")
    lines = screen([pair(), spack], io.StringIO())
    assert lines[2].startswith("pt2pt osu_bw DD (gpu+prefix-ucx-1_14)")
    assert lines[3].startswith("pt2pt osu_bw DD (gpu+spack-ucx-1_14)")


def test_skipped_checks_are_one_line_for_all_that_lack_features():
    ended = Match("memory", "", (), (), ("host+wheels",), "SIGINT ended the run before this check")
    assert list(skips([*SKIPPED, ended])) == [
        "4 checks need OSU micro-benchmarks or a second node (busbar check --list)",
        "1 check did not run: SIGINT ended the run before this check",
    ]
    assert list(skips([])) == []


def test_what_is_needed_is_named_by_features():
    assert needs([["+remote"], ["+pair"], ["+remote"]]) == "a second node or a second GPU"
    assert needs([["+osu", "+gpu"], ["-efa"], ["+own"]]) == (
        "OSU micro-benchmarks, a GPU, a system without EFA or the feature own"
    )
    many = [["+osu"], ["+gpu"], ["+remote"], ["+torch"], ["+ucx"], ["+cxi"]]
    assert needs(many).endswith("PyTorch or other things")


def test_cells_of_others_cannot_break_a_line():
    stream = io.StringIO()
    Terminal(stream).fitted([Column("x"), Column("y")], [["a\nb\x1b[2J", "漢字"], ["c", "d"]])
    assert stream.getvalue().splitlines()[1] == "a\\nb\\x1b[2J  漢字"
