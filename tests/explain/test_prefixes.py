# SPDX-License-Identifier: MIT
"""A prefix before each line changes nothing: neither verdict nor readings nor causes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from busbar.explain import Source, explain
from busbar.parse.prefix import Prefixes
from tests.cases import some

from .outputs import BANNER, load, nccl_table, run
from .test_labels import DATA, LABELS

Prefix = Callable[[int], str]
"""From the number of a line to what is written before it."""


def _clock(line: int) -> str:
    return f"{7 + line // 36000 % 12:02}:{line // 60 % 60:02}:{line % 60:02}"


def _fraction(line: int, digits: int = 6) -> str:
    return f"{line * 7919 % 10**digits:0{digits}}"


STYLES: dict[str, Prefix] = {
    "kubectl logs --prefix": lambda _: "[pod/osu-launcher-x7k2p/mpi-launcher] ",
    "kubectl --timestamps": lambda n: f"2026-11-21T{_clock(n)}.{_fraction(n, 9)}Z ",
    "both": lambda n: f"[pod/nccl-0/main] 2026-11-21T{_clock(n)}.{_fraction(n, 9)}Z ",
    "code in Markdown": lambda _: "    ",
    "a tab": lambda _: "\t",
    "docker compose": lambda _: "worker-1  | ",
    "stern": lambda _: "nccl-test-launcher-9qk4c mpi-launcher ",
    "torchrun": lambda _: "[default0]:",
    "Ray": lambda _: "(RayTrainWorker pid=48213, ip=10.0.12.7) ",
    "PALS": lambda _: "nid001234.hostmgmt2000.cm.site.org 0: ",
    "pdsh": lambda _: "gpu-b12: ",
    "clush": lambda _: "gpu12: ",
    "journald": lambda n: f"Nov 21 {_clock(n)} gpu-b12 slurmstepd[48213]: ",
    "journald -o short-iso": lambda n: f"2026-11-21T{_clock(n)}+0100 gpu-b12 nccl[77]: ",
    "syslog": lambda n: f"<13>Nov  2 {_clock(n)} gpu-b12 nccl-tests: ",
    "date time": lambda n: f"[2026-11-21 {_clock(n)}] ",
    "Open MPI 4 --tag-output": lambda _: "[1,0]<stdout>:",
    "Open MPI 4 --timestamp-output": lambda n: f"Sat Nov 21 {_clock(n)} 2026<stdout>:",
    "Open MPI 4, both": lambda n: f"Sat Nov 21 {_clock(n)} 2026[1,0]<stdout>:",
    "Open MPI 5 --output tag": lambda _: "[prterun-gpu12-48213@1,0]<stdout>: ",
    "Open MPI 5 --output timestamp": lambda n: f"{_clock(n)}.{_fraction(n, 3)}<stdout>: ",
    "srun --label": lambda _: "0: ",
    "srun --label, 1,024 ranks": lambda _: "   0: ",
    "GitHub": lambda n: f"2026-11-21T{_clock(n)}.{_fraction(n, 7)}Z ",
    "GitLab": lambda n: f"2026-11-21T{_clock(n)}.{_fraction(n)}Z 01O ",
    "CRI": lambda n: f"2026-11-21T{_clock(n)}.{_fraction(n, 9)}Z stdout F ",
    "logging": lambda n: f"2026-11-21 {_clock(n)},{_fraction(n, 3)} - bench.nccl - INFO - ",
    "logging, basic": lambda _: "INFO:bench.nccl:",
    "klog": lambda n: f"I1121 {_clock(n)}.{_fraction(n)}   48213 runner.go:{n % 90 + 10}] ",
    "epoch": lambda n: f"{1763710000 + n}.{_fraction(n, 3)} ",
    "dmesg": lambda n: f"[{n // 9 + 99:>5}.{_fraction(n)}] ",
    "nested": lambda n: (
        f"2026-11-21T{_clock(n)}Z stdout F [pod/nccl-0/main] [2026-11-21 {_clock(n)}]"
        " [1,0]<stdout>:"
    ),
    "hex": lambda _: "worker.7f9c6b5d4e21@vm: ",
    "arrow": lambda n: f"run #3 line {n} >>> ",
}
RECORDED = [label for label in LABELS if not label["file"].endswith((".json", ".gz"))]


def outcome(data: str, label: dict[str, Any]) -> tuple[Any, ...]:
    site = load(label["site"]) if "site" in label else None
    sources = [Source.from_text("job.out", data)]
    if "with" in label:
        sources += [Source.from_path(path) for path in sorted(DATA.glob(label["with"]))]
    found = explain(sources, site=site, engine=label.get("engine"))
    return [
        (
            str(each.verdict),
            sorted(cause.id for cause in each.causes),
            [(r.nbytes, r.kind, r.value, r.wrong, r.in_place) for r in each.readings],
            each.tool,
            each.version,
            each.operation,
            each.ranks,
            each.nodes,
        )
        for each in found
    ]  # type: ignore[return-value]


def _text(label: dict[str, Any]) -> str:
    """The lines of a file, of a long one the first and last."""
    lines = (DATA / label["file"]).read_text(errors="replace").split("\n")[1:]
    return "\n".join(lines if len(lines) < 150 else [*lines[:60], *lines[-60:]])


def _prefixed(text: str, prefix: Prefix) -> str:
    return "".join(f"{prefix(n)}{line}\n" for n, line in enumerate(text.splitlines()))


def changed(label: dict[str, Any], styles: Iterable[str]) -> list[tuple[str, str]]:
    """Return the styles that change what is found in a file."""
    text = _text(label)
    plain = outcome(text, label)
    changing = [x for x in styles if outcome(_prefixed(text, STYLES[x]), label) != plain]
    return [(label["file"], style) for style in changing]


KINDS = (
    "h200x4/nccl_no_debug.log",
    "h200x4/nccl_p2p_disabled.log",
    "h200x4/osu_bw_ob1.log",
    "h200x4/osu_allreduce.log",
    "h20-roce/all_reduce_2x8_before.log",
)


def test_recorded_runs_with_a_prefix() -> None:
    """Each kind of file with half of the styles or all, each other file with one of them."""
    names = list(STYLES)
    wrong = []
    for at, label in enumerate(some(RECORDED, 2)):
        one = names[at % len(names)]
        wrong += changed(label, some(names, 2) if label["file"] in KINDS else [one])
    assert not wrong


WORDS = st.from_regex(r"[a-zA-Z][a-zA-Z0-9._-]{0,12}", fullmatch=True)
LAYERS = st.one_of(
    WORDS.map(lambda word: f"{word}: "),
    WORDS.map(lambda word: f"{word} | "),
    st.tuples(WORDS, WORDS).map(lambda words: f"[{words[0]}/{words[1]}] "),
    st.tuples(WORDS, st.integers(0, 99999)).map(lambda pair: f"({pair[0]} pid={pair[1]}) "),
    st.integers(0, 2000).map(lambda rank: f"[{rank}]:"),
    st.sampled_from([name for name in STYLES if name != "epoch"]).map(lambda name: STYLES[name]),
)
TABLE = nccl_table({1 << 28: 337.0, 1 << 30: 356.0}) + "exit_status=0\n"
OSU = BANNER + "1048576   88512.35\n268435456  330000.00\nexit_status=1\n"


@given(st.lists(LAYERS, min_size=1, max_size=4), st.sampled_from([TABLE, OSU]))
def test_any_layers(layers: list[str | Prefix], text: str) -> None:
    def prefix(line: int) -> str:
        return "".join(layer if isinstance(layer, str) else layer(line) for layer in layers)

    assert outcome(_prefixed(text, prefix), {}) == outcome(text, {})


def test_each_rank_has_its_own_prefix() -> None:
    """Rank 0 prints the table in pieces; other pods' lines are between them."""
    text = (DATA / "h200x4/nccl_p2p_disabled.log").read_text()
    order = random.Random(5)  # noqa: S311 - repeatable
    lines = []
    for line in text.splitlines():
        pid = re.match(r"vm:(\d+):", line)
        lines.append(f"[pod/w-{pid[1] if pid else 'main'}/nccl] {line}")
        while order.random() < 0.4:
            lines.append(f"[pod/w-{order.choice('abc')}/nccl] vm:99:99 [1] NCCL INFO Connected")
    found = run("\n".join(lines))
    assert [cause.id for cause in found.causes] == ["nccl-p2p-off"]
    assert len(found.readings) == 24


@pytest.mark.parametrize(
    "line",
    ["8                       1.82", "  1048576   262144  float  sum", "srun: error: x", "[x] y"],
)
def test_lines_without_the_prefix_are_whole(line: str) -> None:
    prefixes = Prefixes()
    prefixes.learn(b"2026-11-21 07:23:34 node1: # nThread 1 nGpus 1")
    prefixes.learn(b"1763710000.5 # nThread 1 nGpus 1")
    prefixes.learn(b"8 # nThread 1 nGpus 1")
    assert prefixes.cut(line.encode()).text == line.encode()


# ---- rows
@pytest.mark.parametrize("columns", ["float", "float     sum", "float               -1"])
def test_rows_of_old_versions_and_of_collectives_without_an_operator(columns: str) -> None:
    halves = "    4512  237.96  356.94  0   4510.1  238.08  357.12  0\n"
    row = f"  1073741824     268435456     {columns}{halves}"
    head = "# nThread 1 nGpus 4 minBytes 8 maxBytes 1073741824 step: 2(factor)\n"
    found = run(head + row + "# Out of bounds values : 0 OK\n")
    assert [r.value for r in found.readings] == [356.94, 237.96, 357.12, 238.08]


@pytest.mark.parametrize("width", [80, 90, 100, 110])
def test_rows_wrapped_by_a_terminal(width: int) -> None:
    text = (DATA / "h200x4/nccl_no_debug.log").read_text()
    wrapped = "".join(
        line[i : i + width] + "\n"
        for line in text.splitlines()
        for i in range(0, max(len(line), 1), width)
    )
    (plain,), (found,) = ([explain([Source.from_text("x", t)])[0]] for t in (text, wrapped))
    assert [r.value for r in found.readings] == [r.value for r in plain.readings]
    assert found.verdict == plain.verdict


def test_two_runs_in_one_file_with_a_prefix_are_two() -> None:
    text = _prefixed(TABLE + TABLE.replace("356.00", "120.00") + OSU, STYLES["docker compose"])
    found = explain([Source.from_text("x", text)])
    assert [len(each.readings) for each in found] == [8, 8, 2]
