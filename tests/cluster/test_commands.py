# SPDX-License-Identifier: MIT
"""The actions of `busbar sweep`, as a user calls them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busbar import site as sites
from busbar.cli import build_parser, main
from busbar.commands.option_types import seconds
from busbar.commands.sweep_run import again
from busbar.slurm.options import Grant

from .generator import measured, names, round_robin, slower

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str, str]:
        try:
            status = main(["sweep", *map(str, words)])
        except SystemExit as end:
            status = int(end.code or 0)
        return (status, *capsys.readouterr())

    return call


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    rows = measured(round_robin(names(8)), slower({"n3": 0.2}), lambda row: 1.0)
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_plan_prints_rows(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("plan", "--nodes", "8", "--rounds", "7", "--seed", "4")
    assert status == 0
    assert [set(row) for row in lines(out)] == [{"round", "a", "b"}] * 28
    (tmp_path / "topology.conf").write_text(
        "SwitchName=s1 Nodes=g[1-4]\nSwitchName=s2 Nodes=g[5-9]"
    )
    topology = ["--topology", tmp_path / "topology.conf", "--rounds", "2"]
    for nodes, count in (("g[1-8]", 8), ("6", 6), ("g[8-9],x", 3)):
        status, out, _ = run("plan", "--nodes", nodes, *topology)
        assert status == 0
        assert len(lines(out)) == 2 * (count // 2)
    status, _, err = run("plan", "--nodes", "10", *topology)
    assert (status, "the topology has 9 nodes, got 10" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", "1", "--rounds", "2"], "a pair needs two nodes"),
        (["--nodes", "0", "--rounds", "2"], "a pair needs two nodes"),
        (["--nodes", "n1", "--rounds", "2"], "a pair needs two nodes"),
        (["--nodes", "n[1-", "--rounds", "2"], "--nodes: 'n[1-' is not a list"),
        (["--nodes", "1000000", "--rounds", "2"], "more than 100,000 nodes"),
        (["--nodes", "9" * 30, "--rounds", "2"], "a pair needs two nodes"),
        (["--nodes", "8"], "--nodes needs --rounds"),
        (["--nodes", "8", "--rounds", "0"], "must be a positive integer"),
        (["--nodes", "8", "--rounds", "2", "--seed", "x"], "must be an integer of 0 or more"),
        (["--nodes", "8", "--rounds", "99999999"], "a plan has at most"),
        (["--rounds", "2"], "one of the arguments --nodes --suspects is required"),
        (["--nodes", "8", "--rounds", "2", "--topology", "/none"], "/none: No such file"),
        (["--suspects", "/none"], "/none: cannot be read: No such file"),
        (["--suspects", "pyproject.toml"], "pyproject.toml: Expecting value"),
    ],
)
def test_plan_refuses(run: Run, words: list[str], message: str) -> None:
    status, out, err = run("plan", *words)
    assert (status, out) == (2, "")
    assert message in err.splitlines()[-1]


def test_analyse_names_the_slow_node(run: Run, results: Path) -> None:
    status, out, _ = run("analyse", results, "--json")
    document = json.loads(out)
    assert status == 1
    assert [(one["kind"], one["id"], one["nodes"]) for one in document["accused"]] == [
        ("node", "n3", ["n3"])
    ]
    assert "5 GB/s in 7 pairs" in document["accused"][0]["evidence"]
    assert "which reach 25 GB/s" in document["accused"][0]["evidence"]
    assert (document["suspects"], document["unmeasured"]) == ([], [])
    status, out, _ = run("analyse", results)
    assert (status, out.startswith("node n3: 5 GB/s")) == (1, True)


def test_analyse_by_a_limit_and_by_a_site(run: Run, results: Path) -> None:
    for words, accused in (
        (["--limit", "25"], 1),
        (["--limit", "250"], 8),
        (["--tolerance", "99%"], 0),
        (["--site", "h20-roce"], 1),
        (["--site", "p5"], 1),
    ):
        status, out, _ = run("analyse", results, "--json", *words)
        assert len(json.loads(out)["accused"]) == accused, words
        assert status == (1 if accused else 0)
    assert "site p5 has no band for all NICs at once" in json.loads(out)["notes"][0]


def test_a_limit_is_that_of_all_nics(run: Run, tmp_path: Path) -> None:
    rows = measured(round_robin(names(8)), slower({}), lambda row: 1.0, ["x0", "x1"])
    rows += measured(round_robin(names(8)), slower({}, 50.0), lambda row: 1.0)
    file = tmp_path / "rows"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("analyse", file, "--limit", "50")[0] == 0
    status, out, _ = run("analyse", file, "--limit", "60", "--json")
    assert (status, len(json.loads(out)["accused"])) == (1, 8)


def test_a_healthy_fleet_exits_0_and_an_unmeasured_node_1(run: Run, results: Path) -> None:
    good = results.read_text().replace(": 5.0", ": 25.0")
    results.write_text(good)
    assert run("analyse", results)[:2] == (0, "nothing is accused\n")
    results.write_text(good + '{"round": 8, "a": "n1", "b": "n9", "state": "dead"}\n')
    assert run("analyse", results)[0] == 1


def test_names_of_others_do_not_control_the_terminal(run: Run, results: Path) -> None:
    results.write_text(results.read_text().replace("n3", "n3\\u001b[2J"))
    _, out, _ = run("analyse", results)
    assert "\x1b" not in out
    assert r"n3\x1b[2J" in out


def test_an_error_is_json_as_well(run: Run, results: Path) -> None:
    results.write_text("{}\n{")
    status, out, err = run("analyse", results, "--json")
    assert status == 2
    assert json.loads(out)["error"]["where"] == f"{results}:1"
    assert err.startswith(f"busbar sweep: {results}:1: ")


def test_the_second_pass_is_planned_from_the_analysis(run: Run, results: Path) -> None:
    three = [line for line in results.read_text().splitlines() if json.loads(line)["round"] < 3]
    results.write_text("\n".join(three))
    status, out, _ = run("analyse", results, "--json")
    document = json.loads(out)
    assert (status, document["accused"], document["last_round"]) == (1, [], 2)
    results.write_text(out)
    status, out, _ = run("plan", "--suspects", results)
    assert status == 0
    pairs = sorted((row["a"], row["b"]) for row in lines(out))
    assert pairs == sorted((one["a"], one["b"]) for one in document["suspects"])
    assert min(row["round"] for row in lines(out)) == 3


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
    }
    parsed = ("command", "sweep_command", "run", "version", "in_job")
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
    for text in ("0m", "10", "", "1x", "m", "1h 2m", "-1m", "1m1m1m1m1m", "٣m", "99999d"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a time such as 10m or 1h30m"):
            seconds(text)
    times = {"90s": 90, "1h30m": 5400, "2d": 172800, "10800s": 10800}
    assert {text: seconds(text) for text in times} == times


def test_what_only_a_limit_can_judge_is_no_pass(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "two.jsonl"
    row = {"round": 1, "a": "n0", "b": "n1", "nic": None, "gb_per_s": 12, "state": "ok"}
    file.write_text(json.dumps(row) + "\n")
    status, out, _ = run("analyse", file)
    assert (status, "too few to compare; give --limit" in out) == (3, True)
    assert run("analyse", file, "--limit", "12")[0] == 0
