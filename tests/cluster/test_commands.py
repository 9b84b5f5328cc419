# SPDX-License-Identifier: MIT
"""The actions of `busbar sweep`, as a user calls them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from busbar import site as sites
from busbar.cli import build_parser
from busbar.commands.option_types import seconds
from busbar.commands.sweep_run import again
from busbar.slurm.options import Grant
from tests.files import executable
from tests.said import Command
from tests.small_site import small_site

from .generator import measured, names, round_robin, slower


@pytest.fixture
def results(tmp_path: Path) -> Path:
    rows = measured(round_robin(names(8)), slower({"n3": 0.2}), lambda row: 1.0)
    return written(tmp_path / "results.jsonl", rows)


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def written(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_analyse_names_the_slow_node(busbar: Command, results: Path) -> None:
    said = busbar("sweep analyse --json", results)
    (one,) = said.json["accused"]
    assert (said.status, one["kind"], one["id"], one["nodes"]) == (1, "node", "n3", ["n3"])
    for words in ("5 GB/s in 7 pairs", "which reach 25 GB/s"):
        assert words in one["evidence"]
    assert (said.json["suspects"], said.json["unmeasured"]) == ([], [])
    said = busbar("sweep analyse", results)
    first, following, evidence = said.out.splitlines()[:3]
    slow = "5 GB/s in 7 pairs with different healthy nodes, which reach 25 GB/s with others"
    assert (said.status, first) == (1, f"degraded: node n3 is slow: {slow}")
    assert following.startswith("next: ")
    assert evidence.startswith("node n3: 5 GB/s")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gb_per_s": 250.0}, "more than the links carry between n1-n8"),
        ({"state": "wrong"}, "wrong data between n1-n8"),
    ],
)
def test_a_reading_that_cannot_be_is_no_pass(
    change: dict[str, Any], words: str, tmp_path: Path, busbar: Command
) -> None:
    rows = measured(round_robin(names(8)), slower({}), lambda row: 1.0)
    said = busbar("sweep analyse --json --limit 25", written(tmp_path / "well.jsonl", rows))
    assert (said.status, said.json["unmeasured"], said.json["notes"]) == (0, [], [])
    pair = f"{rows[0]['a']}-{rows[0]['b']}"
    rows[0] |= change
    said = busbar("sweep analyse --json --limit 25", written(tmp_path / "altered.jsonl", rows))
    assert (said.status, said.json["unmeasured"]) == (1, [pair])
    assert said.json["notes"][0] == words.replace("n1-n8", pair)


def test_analyse_by_a_limit_and_by_a_site(busbar: Command, results: Path) -> None:
    for more, accused in (
        ("--limit 25", 1),
        ("--limit 250", 8),
        ("--tolerance 99%", 0),
        ("--site h20-roce", 1),
        ("--site p5", 1),
    ):
        said = busbar(f"sweep analyse --json {more}", results)
        assert (len(said.json["accused"]), said.status) == (accused, int(accused > 0)), more
    assert "site p5 has no band for all NICs at once" in said.json["notes"][0]


def test_a_limit_is_that_of_all_nics(busbar: Command, tmp_path: Path) -> None:
    rows = measured(round_robin(names(8)), slower({}), lambda row: 1.0, ["x0", "x1"])
    rows += measured(round_robin(names(8)), slower({}, 50.0), lambda row: 1.0)
    file = written(tmp_path / "rows", rows)
    assert busbar("sweep analyse --limit 50", file).status == 0
    said = busbar("sweep analyse --limit 60 --json", file)
    assert (said.status, len(said.json["accused"])) == (1, 8)


def test_a_healthy_fleet_exits_0_and_an_unmeasured_node_1(busbar: Command, results: Path) -> None:
    good = results.read_text().replace(": 5.0", ": 25.0")
    results.write_text(good)
    said = busbar("sweep analyse", results)
    assert (said.status, said.out) == (0, "nothing is accused\n")
    results.write_text(good + '{"round": 8, "a": "n1", "b": "n9", "state": "dead"}\n')
    assert busbar("sweep analyse", results).status == 1


def test_names_of_others_do_not_control_the_terminal(busbar: Command, results: Path) -> None:
    results.write_text(results.read_text().replace("n3", "n3\\u001b[2J"))
    out = busbar("sweep analyse", results).out
    assert "\x1b" not in out
    assert r"n3\x1b[2J" in out


def test_an_error_is_json_as_well(busbar: Command, results: Path) -> None:
    results.write_text("{}\n{")
    said = busbar.refuses(f"busbar sweep analyse: {results}:1: ", "sweep analyse --json", results)
    assert said.json["error"]["where"] == f"{results}:1"


SLURM = {
    "sinfo": "printf 'n1|idle|none\\nn2|idle|none\\n'",
    "scontrol": "echo PartitionName=host MaxTime=$LONGEST State=UP",
    "salloc": 'echo "$@" >asked; echo 7 >out/job; kill -9 $$',
    "scancel": 'echo "$@" >cancelled',
}


LIMITS = (("UNLIMITED", "--deadline=90s", 12), ("00:15:00", "--rounds=4", 15), ("1-0", "", 28))


@pytest.mark.parametrize("limits", LIMITS)
def test_a_job_of_a_sweep_does_not_outlive_it(
    limits: tuple[str, str, int],
    busbar: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has a time limit, and is cancelled if only salloc was killed."""
    longest, option, minutes = limits
    for name, text in SLURM.items():
        executable(tmp_path / name, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LONGEST", longest)
    monkeypatch.chdir(tmp_path)
    site = small_site(tmp_path, scheduler="slurm")
    assert busbar(f"sweep run --output out --site {site} {option}").status == 128 + 9
    assert f"--time={minutes}" in Path("asked").read_text().split()
    assert Path("cancelled").read_text() == "7\n"


def test_the_job_of_a_sweep_has_each_option_of_its_command() -> None:
    values = {
        "site": "local",
        "partition": "p",
        "output": "out",
        "nodelist": "n[1-2]",
        "reservation": "r",
        "sbatch": "--account=a",
        "max_pending": "3h",
        "deadline": "3h",
        "lane": "ucx-current",
        "delivery": "modules",
        "seconds": "0.125",
        "tolerance": "20%",
        "rounds": "4",
        "seed": "7",
        "limit": "12.5",
        "prefix": "stack",
    }
    parsed = ("prog", "run", "version", "in_job")
    parser = build_parser(["sweep"])
    usual = vars(parser.parse_args(["sweep", "run"]))
    flags = [f"--{name}" for name, value in usual.items() if value is False]
    flags.remove("--in_job")
    options = [name for name in usual if name not in parsed]
    given = [n for n in options if f"--{n}" not in flags]
    words = [f"--{n.replace('_', '-')}={values.get(n, f'{n}.txt')}" for n in given]
    args = parser.parse_args(["sweep", "run", *flags, *words])
    args.command_line = ["sweep", "run", *flags, *words]
    before = vars(args).copy()
    assert [name for name in options if before[name] == usual[name]] == []
    partition = sites.load("local").partitions[0]
    command = again(args, "/sites/x", Path("/out"), Grant((partition,), {}))
    assert command[1:4] == ["-P", "-m", "busbar"]
    after = vars(parser.parse_args(command[4:]))
    changed = {
        "site": "/sites/x",
        "partition": partition.name,
        "output": Path("/out"),
        "nodelist": "",
        "in_job": True,
    }
    assert after == {**{name: before[name] for name in after}, **changed}


def test_times() -> None:
    for text in ("0m", "10", "", "1x", "m", "-1m", "1m1m1m1m1m", "٣m", "99999d"):
        with pytest.raises(ValueError, match="is not a time such as 10m or 1h30m"):
            seconds(text)
    times = {"90s": 90, "1h30m": 5400, "1h 2m": 3720, "2d": 172800, "10800s": 10800}
    assert {text: seconds(text) for text in times} == times


def test_what_only_a_limit_can_judge_is_no_pass(busbar: Command, tmp_path: Path) -> None:
    row = {"round": 1, "a": "n0", "b": "n1", "nic": None, "gb_per_s": 12, "state": "ok"}
    file = written(tmp_path / "two.jsonl", [row])
    said = busbar("sweep analyse", file)
    assert (said.status, "too few to compare; pass --limit" in said.out) == (3, True)
    assert busbar("sweep analyse --limit 12", file).status == 0
