# SPDX-License-Identifier: MIT
"""What the pages say of runs as they are, and of files that anybody can have written."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, permutations
from math import inf, nan
from pathlib import Path

import pytest

from busbar import cli, site as sites
from busbar.check.snapshot import Snapshot, read
from busbar.cluster.nodes.record import NodeEvidence, NodeRecord
from busbar.errors import BusbarError
from busbar.report.curve import LEFT, RIGHT, curve
from busbar.report.mail import mail
from busbar.report.matrix import matrix
from busbar.report.news import news
from busbar.report.page import Page, page_of, render, render_pages
from busbar.report.scale import LogScale, size_ticks, value_ticks, values_scale
from busbar.report.sections import Frame
from busbar.report.trend import by_check, trend
from busbar.units import parse_bytes
from busbar.verdict import Verdict
from tests.cases import cases
from tests.said import Command

from .documents import (
    FACTS,
    FIRST,
    MARKUP,
    SIZES,
    cause,
    curve_rows,
    document,
    event,
    matrix_rows,
    row,
    series,
    snapshot,
)

SITE = sites.load("h200x4")
MOST_BYTES = 3_000_000


def page(run: Snapshot) -> Page:
    return page_of(Frame(run, SITE))


def test_nodes_that_need_something_are_listed(tmp_path: Path) -> None:
    evidence = NodeEvidence("sweep", "2026-11-22", "<b>0.5 GB/s", True, "ticket")
    bad = NodeRecord("n2", "faulty", "2026-11-21", "n2 idle", (evidence,), next="drain")
    fine = snapshot(tmp_path, [row(value=1.0, where="n1")])
    found = page_of(Frame(fine, SITE), nodes=[bad, NodeRecord("n3")])
    assert found.run.verdict is Verdict.DEGRADED
    assert found.headline.text.startswith("n2 is faulty: <b>0.5 GB/s; no reading is below")
    text = render(found)
    shown = text.partition('id="records"')[2].partition("</section>")[0]
    assert "n2 idle" in shown
    assert "sweep: &lt;b&gt;0.5 GB/s" in shown
    assert "n3" not in shown


def with_history(run: Snapshot) -> Page:
    nights = [series(), series("link_matrix")]
    events = [event(*nights)]
    trends = by_check(
        (each.key.check, one) for each in nights if (one := trend(each, events, FACTS))
    )
    return page_of(Frame(run, SITE, trends), list(news(events)))


def _pairs(slow: set[int], **more: object) -> list:
    """Readings of four GPUs of which some are slow."""
    return [
        row(
            *("link_matrix", 20.0 if {a, b} & slow else 40.0),
            **{"pair": f"{a}->{b}", "buffers": "D D", "bytes": size, "low": 30.0, **more},
            verdict=Verdict.DEGRADED if {a, b} & slow else Verdict.PASS,
        )
        for a, b in permutations(range(4), 2)
        for size in (4096, 8192)
    ]


HOST = [
    row("memory", 9.0, pair=f"to_gpu {n}", bytes=64, low=20.0, verdict=Verdict.DEGRADED)
    for n in range(4)
]


@cases(
    ("rows", "text"),
    [
        (_pairs({2}), "GPU 2 reaches 20 of 30 GB/s at 8 KiB"),
        (_pairs({2}, buffers="H H"), "rank 2 reaches 20 of 30 GB/s at 8 KiB"),
        (_pairs({0, 1, 2, 3}), "every pair of GPUs reaches 20 of 30 GB/s"),
        (HOST, "host memory to all 4 GPUs reaches 9 of 20 GB/s"),
        (HOST[:1], "host memory to GPU 0 reaches 9 of 20 GB/s"),
    ],
)
def test_the_part_that_all_bad_readings_share(rows: list, text: str, tmp_path: Path) -> None:
    shown = page(snapshot(tmp_path, rows, verdict="degraded"))
    assert shown.headline.text.startswith(text)
    assert shown.checks[0].missed == shown.headline.text


@cases(
    ("rows", "says", "text"),
    [
        ([row(value=1.0)], "pass", "nothing is slower than expected in 1 check"),
        ([row(value=1.0), row("b", 1.0)], "pass", "nothing is slower than expected in 2 checks"),
        ([row(value=1.0, verdict=Verdict.UNJUDGED)], "unjudged", "1 check measured"),
        ([row(value=1.0, verdict=Verdict.DEGRADED)], "degraded", "xccl reaches 1 of 5 GB/s"),
        ([], "failed", "nothing was measured"),
        ([row("b", verdict=Verdict.NOT_RUN)], "not run", "b: no recorded reason"),
    ],
)
def test_the_first_line(rows: list, says: str, text: str, tmp_path: Path) -> None:
    shown = page(snapshot(tmp_path, rows))
    assert shown.run.verdict == says
    assert shown.headline.text.startswith(text)
    assert f"{says}</span>: {text}" in render(shown)


@cases(
    "text",
    [
        *("", "{", "[]", "null", "[" * 9999, '{"schema": "busbar-check/1"}', "\xff", "\0"),
        json.dumps(document([], schema="busbar-check/2")),
        json.dumps(document([{"check": "x"}])),
        json.dumps(document([row(verdict=Verdict.PASS)])).replace('"pass"', '"good"'),
        json.dumps(document([row(value=1.0)])).replace("1.0", '"fast"'),
        json.dumps(document([row(value=1.0)])).replace("1.0", "1e999"),
        *(json.dumps(document([row(value=1.0, low=each)])) for each in (nan, inf, -inf)),
        json.dumps(document([], causes=[{"check": "x"}])),
    ],
)
def test_a_file_that_is_no_result(text: str, tmp_path: Path, busbar: Command) -> None:
    file = tmp_path / "results.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(BusbarError) as error:
        read(file)
    assert error.value.where == str(file)
    said = busbar.refuses("", "report", file, "--output", tmp_path / "out")
    assert len(said.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_readings_without_a_place_on_the_axes(tmp_path: Path) -> None:
    """They are counted and are in the table; the picture has the others."""
    bad = (nan, inf, -inf, 0.0, -1.0, 1e300, 5e-324)
    rows = [row(value=value, bytes=8 << n) for n, value in enumerate((1.0, 2.0))]
    rows += [row(value=each, bytes=8, verdict=Verdict.FAILED) for each in bad]
    rows += [row(value=1.0, bytes=0, verdict=Verdict.UNJUDGED)]
    for n, each in enumerate(rows):
        each["pair"] = f"p{n}"
    results = snapshot(tmp_path, rows).outcomes[0].results
    picture = curve("x", results)
    assert picture.left_out == len(bad) + 1
    assert not re.search(r"nan|inf", f"{picture.lines}{picture.band}{picture.limit}")
    shown = render(page(snapshot(tmp_path, rows)))
    assert "not a number" in shown
    assert f"{len(bad)} " in shown


def test_one_reading_fills_no_picture(tmp_path: Path) -> None:
    (check,) = page(snapshot(tmp_path, [row(value=1.5, bytes=8, pair="0->1")])).checks
    assert not check.curves
    assert not check.matrices
    assert [(bar.measured, bar.size, bar.count) for bar in check.bars] == [("1.5 GB/s", "8 B", 1)]


def test_sizes_are_thinned_to_powers_of_two_that_were_measured() -> None:
    scale = LogScale(SIZES[0], SIZES[-1], 0, 300)
    labels = [parse_bytes(tick.label) for tick in size_ticks(SIZES, scale)]
    assert 3 <= len(labels) <= 5
    assert set(labels) <= set(SIZES)
    assert len({b // a for a, b in pairwise(labels)}) == 1
    odd = [tick.label for tick in size_ticks([1000, 3000, 10**6, 10**7, 10**8, 10**9], scale)]
    assert all(parse_bytes(label).bit_count() == 1 for label in odd)


@cases("values", [[1.0], [100, 101], [1e-3, 5e5], [0.3, 0.31, 0.4], []])
def test_a_value_axis_has_room_and_ticks(values: list[float]) -> None:
    scale = values_scale(values, 200, 0)
    assert scale.high / scale.low > 1.5
    assert 2 <= len(value_ticks(scale)) <= 6
    assert all(0 <= tick.at <= 200 for tick in value_ticks(scale))


def test_the_pairs_of_a_node(tmp_path: Path) -> None:
    run = snapshot(tmp_path, list(matrix_rows(slow=2)))
    rows = [each for each in run.outcomes[0].results if each.bytes == 1 << 28]
    drawn = matrix("x", rows)
    assert len(drawn.cells) == 12
    bad = [cell for cell in drawn.cells if cell.verdict is Verdict.DEGRADED]
    assert {cell.step for cell in bad} == {4}
    assert {cell.step for cell in drawn.cells if cell not in bad} == {0}


class _Svg(HTMLParser):
    """Every picture and its text alternative."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pictures: list[dict[str, str | None]] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "svg":
            self.pictures.append(found)
        if found.get("id"):
            self.ids.append(str(found["id"]))


def test_every_picture_has_a_text_alternative(tmp_path: Path) -> None:
    rows = [*matrix_rows(slow=1), *curve_rows(), row("b", 1.0, bytes=8), row("c", 1.0, where="n2")]
    found = _Svg(render(with_history(snapshot(tmp_path, rows))))
    shown = [
        each for each in found.pictures if "aria-hidden" not in each and "overflow" not in each
    ]
    assert len(shown) > 8
    for picture in shown:
        assert picture["role"] == "img"
        names = str(picture.get("aria-labelledby") or "").split()
        assert picture.get("aria-label") or (len(names) == 2 and set(names) <= set(found.ids))
    assert len(found.ids) == len(set(found.ids))


def test_changes_and_what_differed_then(tmp_path: Path) -> None:
    shown = render(with_history(snapshot(tmp_path, list(curve_rows()))))
    for words in (
        "What changed",
        "-18.0 % (95 %: -19.0 to -17.0 %)",
        "libfabric 2.0 -&gt; 2.2 in the lock: it carries the data",
        "lock.libfabric 2.0 -&gt; 2.2",  # the mark in the picture
    ):
        assert words in shown
    assert "is below its band" in shown  # not that nothing is slower
    unjudged = replace(snapshot(tmp_path, []), verdict=Verdict.UNJUDGED)
    nothing = with_history(unjudged)
    assert nothing.run.verdict is Verdict.DEGRADED
    assert nothing.headline.text.startswith("node n1: busbw all_reduce 256 MiB 18.0% lower")
    assert "driver unchanged" not in shown
    assert shown.index("What changed") < shown.index('id="checks"')


def test_the_nights_since_a_time() -> None:
    nights = series()
    all_of_them, late = (trend(nights, [], FACTS, since) for since in (None, FIRST + 25 * 86400))
    assert (all_of_them.nights, late.nights) == (30, 5)
    assert len(late.signs) == 0
    assert trend(nights, [], FACTS, FIRST + 1e9) is None


def test_a_long_history_is_drawn_around_its_change_above_all_nights() -> None:
    nights = series(nights=900, step=400)
    last, around = trend(nights, [], FACTS), trend(nights, [event(nights, step=400)], FACTS)
    for each, first in ((last, 810), (around, 370)):
        assert (each.in_part, each.nights, len(each.dots), len(each.table)) == (True, 900, 90, 400)
        width = (RIGHT - LEFT - 16) / 899
        assert each.overview.start == pytest.approx(LEFT + 8 + first * width, abs=0.1)
        assert each.overview.width == pytest.approx(89 * width, abs=0.2)
        assert len(each.overview.area.split()) <= 2 * 140
    assert len(around.steps) == len(around.overview.marks) == 1
    step = event(nights, step=400)
    until = float(nights.times[600])
    drift = replace(step, changes=(replace(step.changes[0], until=until, weekly=-0.01),))
    whole = trend(nights, [drift], FACTS)
    assert len(whole.dots) == 601 - 370
    assert whole.steps[0].until == whole.dots[-1][0]
    assert not trend(series(), [], FACTS).in_part


def test_a_node_without_a_problem_passes_if_one_reading_was_judged(tmp_path: Path) -> None:
    rows = [
        row(value=1.0, where=node, verdict=verdict)
        for node in ("n1", "n2")
        for verdict in (Verdict.PASS, Verdict.UNJUDGED)
    ]
    assert page(snapshot(tmp_path, rows)).fleet.counts == ((Verdict.PASS, 2),)


def test_a_repeat_command_is_one_that_busbar_takes(tmp_path: Path) -> None:
    name = "pt2pt %size_set=full %bench=osu_bw %buffers=D D"
    rows = [
        row(name, 1.0, verdict=Verdict.DEGRADED, where="n3"),
        row("x; rm -rf /", 1.0, verdict=Verdict.FAILED),
        row("require xccl", verdict=Verdict.FAILED, message="no"),
    ]
    commands = {each.checks[0]: each.repeat for each in page(snapshot(tmp_path, rows)).failures}
    parser = cli.build_parser(["check"])
    for command in commands.values():
        words = shlex.split(command)
        assert words[0] == "busbar"
        parser.parse_args(words[1:])
    section = {each.name: each.repeat for each in page(snapshot(tmp_path, rows)).checks}
    assert shlex.split(section["pt2pt full osu_bw DD"])[-2:] == ["-n", "pt2pt full osu_bw DD"]
    assert shlex.split(section["x; rm -rf /"])[-1] == "x; rm -rf /"
    assert shlex.split(section["require xccl"])[-2:] == ["--require", "xccl"]


def test_a_machine_that_no_site_describes_is_detected_again(tmp_path: Path) -> None:
    run = replace(snapshot(tmp_path, [row("pt2pt", 1.0, verdict=Verdict.FAILED)]), site="detected")
    assert "--site" not in page(run).checks[0].repeat


def test_the_packages_of_the_lock_are_folded(tmp_path: Path) -> None:
    versions = {"mpi": "5.0.11", "lock_hash": "ab", **{f"lock.p{n}": "1.0" for n in range(65)}}
    shown = render(page(snapshot(tmp_path, [row(value=1.5)], versions=versions)))
    facts, packages = shown[shown.index('id="stack"') :].split('<details class="more">')
    assert [name in facts for name in ("mpi", "lock_hash", "p0")] == [True, True, False]
    assert packages.startswith("<summary>65 packages of the lock</summary>")
    assert 'tabindex="0" role="region" aria-label="Packages of the lock"' in packages
    assert packages.index('<th scope="row">p64</th><td>1.0</td>') < packages.index("</details>")
    assert "of the lock" not in render(page(snapshot(tmp_path, [row(value=1.5)])))


def test_what_is_new_since_the_run_before(tmp_path: Path) -> None:
    old = [row("a", 1.0, verdict=Verdict.DEGRADED)]
    new = [*old, row("b", 1.0, verdict=Verdict.DEGRADED)]
    causes = [cause("a", "known"), cause("b", "fresh")]
    before = snapshot(tmp_path, old, causes=causes[:1], versions={"mpi": "4.1"})
    after = snapshot(tmp_path, new, causes=causes)
    shown = page_of(Frame(after, SITE), before=before)
    assert {each.id: each.new for each in shown.failures} == {"known": False, "fresh": True}
    assert shown.differs == ("mpi 4.1 -> Open MPI 5.0.11",)
    assert not any(each.new for each in page(after).failures)


def many_series(tmp_path: Path, checks: int) -> Snapshot:
    """500 series of 14 sizes."""
    found = []
    for n in range(500):
        for each in curve_rows(f"check {n % checks}"):
            found.append({**each, "pair": f"operation {n}"})
    return snapshot(tmp_path, found)


@pytest.mark.run
@cases("checks", [1, 500])
def test_500_series_are_less_than_3_mb(checks: int, tmp_path: Path) -> None:
    run = many_series(tmp_path, checks)
    assert len(render(page(run)).encode()) < MOST_BYTES
    if checks < 500:
        sizes = [
            len(text.encode()) for _, text in render_pages(page_of(Frame(run, SITE, inline=False)))
        ]
        assert len(sizes) == 1 + checks
        assert max(sizes) < MOST_BYTES


def test_64_nodes(tmp_path: Path) -> None:
    rows = [each for n in range(64) for each in matrix_rows(2 if n == 17 else None, f"n{n:02}")]
    rows += [row("xccl", verdict=Verdict.NOT_RUN, where="n40", message="it waited for 10m")]
    shown = page(snapshot(tmp_path, rows))
    assert shown.fleet.total == 64
    assert [(node.name, node.verdict) for node in shown.fleet.listed] == [
        ("n17", Verdict.DEGRADED),
        ("n40", Verdict.NOT_RUN),
    ]
    assert ("xccl on n40", "it waited for 10m") in shown.unmeasured
    (check,) = (each for each in shown.checks if each.name == "link_matrix")
    assert "on n17" in check.matrices[0].title
    assert len(render(shown).encode()) < MOST_BYTES


def test_one_screen_for_mail(tmp_path: Path) -> None:
    rows = [row(f"check {n}", 1.0, verdict=Verdict.FAILED) for n in range(40)]
    causes = [cause(f"check {n}", f"cause-{n}", remedy="Do this. " * 40) for n in range(40)]
    run = snapshot(tmp_path, rows, causes=causes, site=MARKUP, coverage="62 of 64 nodes tested")
    lines = mail(with_history(run))
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 78
    text = "\n".join(lines)
    assert text.replace("\n", "").isprintable()
    assert "62 of 64 nodes tested" in text.replace("\n  ", " ")
    assert "failed: check 0: GPU 2" in text.replace("\n  ", " ")
    assert "and 37 more causes" in text


@cases(
    ("line", "text"),
    [
        ("", "no such file; pass the results.json of a run"),
        ("--mail --rows rows", "requires --sweep, the results of the sweep"),
        ("none.json --mail", "none.json: cannot be read: No such file"),
        (". --mail", ".: is a directory; pass a file in it, such as a.json"),
        ("a.json b.json --mail", "several sites: h200x4, other"),
        ("a.json --site p5 --mail", "no results of site p5, only of h200x4"),
        ("a.json --since lastweek --mail", "lastweek"),
        ("a.json --output a.json", "is the name of a file"),
        ("a.json --prometheus a.json/x", "cannot be written: Not a directory"),
        ("--sweep a.json --mail", "a.json: is a results.json of busbar check"),
    ],
)
def test_wrong_arguments(
    line: str, text: str, tmp_path: Path, busbar: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSBAR_HISTORY", str(tmp_path / "history"))
    monkeypatch.chdir(tmp_path)
    for name, site in (("a", "h200x4"), ("b", "other")):
        Path(f"{name}.json").write_text(json.dumps(document([row(value=1.0)], site=site)))
    said = busbar(f"report {line}")
    assert (said.status, text in said.err) == (2, True)
    assert not (tmp_path / "history").exists()  # reading makes no store


def test_latencies_of_a_healthy_node_do_not_look_like_a_fault(tmp_path: Path) -> None:
    values = {"0->1": 8.8, "1->2": 9.7, "2->0": 10.7}  # recorded on four H100
    rows = [
        row("m", us, metric="latency", pair=pair, bytes=8, verdict=Verdict.UNJUDGED)
        for pair, us in values.items()
    ]
    drawn = matrix("x", snapshot(tmp_path, rows).outcomes[0].results)
    assert max(cell.step for cell in drawn.cells) == 2
    rows[0]["us"] = 2.0
    drawn = matrix("x", snapshot(tmp_path, rows).outcomes[0].results)
    assert max(cell.step for cell in drawn.cells) == 4


def test_the_worst_reading_names_its_pair(tmp_path: Path) -> None:
    (check,) = page(snapshot(tmp_path, list(matrix_rows(slow=2)))).checks
    assert check.reading.startswith("GPU 0 to GPU 2")


def test_a_check_with_parameters_shows_its_history(tmp_path: Path) -> None:
    """The history has the check without them, and every variant has its own series."""
    what = {"where": "n1", "metric": "busbw", "bytes": 256 << 20}
    rows = [
        row("xccl %collective=all_reduce", 400.0, pair="all_reduce", **what),
        row("xccl %collective=alltoall", 300.0, pair="alltoall", **what),
    ]
    one = series()
    found = trend(replace(one, key=replace(one.key, metric="busbw all_reduce 256 MiB")), [], FACTS)
    assert found
    gone = replace(found, metric="busbw all_reduce 256 MiB n9")
    frame = Frame(snapshot(tmp_path, rows), SITE, {"xccl": [found, gone]})
    shown = page_of(frame)
    history = {each.name: each.trends for each in shown.checks}
    assert [bool(trends) for name, trends in history.items() if "all_reduce" in name] == [True]
    assert [bool(trends) for name, trends in history.items() if "alltoall" in name] == [False]
    assert shown.others == (gone,)
