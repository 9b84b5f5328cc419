# SPDX-License-Identifier: MIT
"""``busbar explain`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busbar.cli import main

DATA = Path(__file__).parents[1] / "data"
KEYS = {"files", "tool", "version", "ranks", "nodes", "readings", "verdict", "causes", "notes"}


def test_json_of_a_slow_run(capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "h200x4/nccl_p2p_disabled.log"
    assert main(["explain", "--json", str(path)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert set(document) >= KEYS
    assert (document["tool"], document["version"]) == ("nccl-tests", "2.19.6")
    assert (document["ranks"], document["nodes"], document["verdict"]) == (4, 1, "degraded")
    assert set(document["readings"][0]) >= {"bytes", "gb_per_s", "kind", "wrong"}
    (cause,) = document["causes"]
    assert (cause["id"], cause["confidence"]) == ("nccl-p2p-off", "certain")
    lines = path.read_text().splitlines()
    for evidence in cause["evidence"]:
        assert lines[evidence["line"] - 1].strip() == evidence["text"].strip()
        assert evidence["file"] == str(path)


def test_json_of_several_runs_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(DATA / f"h200x4/{name}") for name in ("nccl_no_debug.log", "osu_bw_ob1.log")]
    assert main(["explain", "--json", *files]) == 1
    assert [run["verdict"] for run in json.loads(capsys.readouterr().out)] == ["pass", "failed"]


def test_text_begins_with_the_worst_run(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(DATA / f"h200x4/{name}") for name in ("nccl_no_debug.log", "osu_bw_ob1.log")]
    assert main(["explain", *files]) == 1
    text = capsys.readouterr().out
    assert text.startswith("failed: ")
    assert "pass: " in text


def test_text_names_cause_line_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "h200x4/osu_bw_ob1.log"
    assert main(["explain", str(path)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("failed: ")
    assert "cause ucx-not-selected (certain)" in text
    assert "mca_pml_ob1_send_request_schedule_once" in text
    assert "next: Run with --mca pml ucx" in text


def test_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(DATA / "h200x4/nccl_no_debug.log")]) == 0
    nothing = tmp_path / "nothing.log"
    nothing.write_text("hello\n")
    assert main(["explain", str(nothing)]) == 2
    assert "no known tool output found; expected the output of OSU" in capsys.readouterr().err
    assert main(["explain", "--site", "nowhere", str(nothing)]) == 2


def test_expected_versions(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "h200x4/nccl_healthy_a.log")
    assert main(["explain", "--expect-version", "nccl=2.2", path]) == 1
    assert "cause nccl-version-mismatch" in capsys.readouterr().out


def test_engine_option(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "mi250x/osu_bw_sdma1_gcd0_gcd1.log")
    assert main(["explain", "--site", "mi250x", path]) == 0
    assert main(["explain", "--site", "mi250x", "--engine", "kernel", "--json", path]) == 1
    document = json.loads(capsys.readouterr().out.split("\n{\n", 1)[1].join(["{\n", ""]))
    assert [(c["id"], c["confidence"]) for c in document["causes"]] == [("sdma-cap", "certain")]


def test_cause_comes_first_and_each_size_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / "h200x4/nccl_p2p_disabled.log"
    main(["explain", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "degraded: all_reduce of 4 ranks reaches 27.52 of 322.7 GB/s at 1 GiB"
    )
    assert lines[2] == "nccl-tests 2.19.6, NCCL 2.28.3, all_reduce, 4 ranks, 1 node, site h200x4"
    order = [next(i for i, line in enumerate(lines) if word in line) for word in (
        "degraded: ", "next: ", "cause nccl-p2p-off", "NCCL_P2P_DISABLE=1 ",
        "measured",
    )]  # fmt: skip
    assert order == sorted(order)
    assert len([line for line in lines if "in place" in line]) == 6
    table = lines[order[-1] :]
    assert all(len(line) <= 80 for line in table if "MiB" in line or "GiB" in line)
    assert len(lines) == len(set(lines))


def test_evidence_is_not_cut_before_its_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.log"
    file.write_text("x" * 700 + " slurmstepd: error: Detected 1 oom-kill event(s) in step\n")
    main(["explain", str(file)])
    assert "oom-kill event" in capsys.readouterr().out


def test_log_without_a_benchmark_is_named_by_its_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.log"
    file.write_text("n1:1:1 [0] NCCL INFO NCCL version 2.17.1+cuda12.1\n")
    main(["explain", str(file)])
    assert capsys.readouterr().out.splitlines()[1].startswith("NCCL 2.17.1, 1 rank")


def test_verbose_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "h200x4/gpu_aware_healthy.log")
    main(["explain", path])
    short = capsys.readouterr().out
    main(["explain", "-v", path])
    assert len(capsys.readouterr().out) > len(short)
