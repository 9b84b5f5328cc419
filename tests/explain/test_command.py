# SPDX-License-Identifier: MIT
"""``busbar explain`` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.files import written
from tests.said import Command

DATA = Path(__file__).parents[1] / "data"
KEYS = {"files", "tool", "version", "ranks", "nodes", "readings", "verdict", "causes", "notes"}
TWO = [DATA / f"h200x4/{name}" for name in ("nccl_no_debug.log", "osu_bw_ob1.log")]


def test_json_of_a_slow_run(busbar: Command) -> None:
    path = DATA / "h200x4/nccl_p2p_disabled.log"
    said = busbar("explain --json", path)
    document = said.json
    assert said.status == 1
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


def test_json_of_several_runs_is_a_list(busbar: Command) -> None:
    said = busbar("explain --json", *TWO)
    assert (said.status, [run["verdict"] for run in said.json]) == (1, ["pass", "failed"])


def test_text_begins_with_the_worst_run(busbar: Command) -> None:
    said = busbar("explain", *TWO)
    assert said.status == 1
    assert said.out.startswith("failed: ")
    assert "pass: " in said.out


def test_text_names_cause_line_and_remedy(busbar: Command) -> None:
    said = busbar("explain", DATA / "h200x4/osu_bw_ob1.log")
    text = " ".join(said.out.split())
    assert said.status == 1
    assert text.startswith("failed: ")
    assert "cause ucx-not-selected (certain)" in text
    assert "mca_pml_ob1_send_request_schedule_once" in text
    assert "next: Run with --mca pml ucx" in text


def test_exit_status(tmp_path: Path, busbar: Command) -> None:
    assert busbar("explain", DATA / "h200x4/nccl_no_debug.log").status == 0
    nothing = written(tmp_path / "nothing.log", "hello\n")
    said = busbar("explain", nothing)
    assert said.status == 2
    assert "no known tool output found; expected the output of OSU" in said.err
    assert busbar("explain --site nowhere", nothing).status == 2


def test_expected_versions(busbar: Command) -> None:
    said = busbar("explain --expect-version nccl=2.2", DATA / "h200x4/nccl_healthy_a.log")
    assert said.status == 1
    assert "cause nccl-version-mismatch" in said.out


def test_engine_option(busbar: Command) -> None:
    path = DATA / "mi250x/osu_bw_sdma1_gcd0_gcd1.log"
    assert busbar("explain --site mi250x", path).status == 0
    said = busbar("explain --site mi250x --engine kernel --json", path)
    assert said.status == 1
    assert [(c["id"], c["confidence"]) for c in said.json["causes"]] == [("sdma-cap", "certain")]


def test_cause_comes_first_and_each_size_has_one_line(busbar: Command) -> None:
    lines = busbar("explain", DATA / "h200x4/nccl_p2p_disabled.log").out.splitlines()
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


def test_evidence_is_not_cut_before_its_point(tmp_path: Path, busbar: Command) -> None:
    line = "x" * 700 + " slurmstepd: error: Detected 1 oom-kill event(s) in step\n"
    assert "oom-kill event" in busbar("explain", written(tmp_path / "x.log", line)).out


def test_log_without_a_benchmark_is_named_by_its_library(tmp_path: Path, busbar: Command) -> None:
    line = "n1:1:1 [0] NCCL INFO NCCL version 2.17.1+cuda12.1\n"
    said = busbar("explain", written(tmp_path / "x.log", line))
    assert said.out.splitlines()[1].startswith("NCCL 2.17.1, 1 rank")


def test_verbose_shows_all(busbar: Command) -> None:
    path = DATA / "h200x4/gpu_aware_healthy.log"
    assert len(busbar("explain -v", path).out) > len(busbar("explain", path).out)


RANKS = """\
# nThread 1 nGpus 1 minBytes 8388608 maxBytes 67108864 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid   4100 on   node0 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4200 on   node1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
node0:4100:4101 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/{kind} [RO]; OOB ib0:10.0.0.1<0>
 8388608 2097152 float sum -1 152.3 55.08 103.27 0 150.9 55.59 104.23 0
 16777216 4194304 float sum -1 196.8 85.25 159.84 0 195.1 85.99 161.24 0
{event}node1:4200:4201 [0] transport/net_ib.cc:1 NCCL WARN NET/IB: Got completion\
 from peer 10.0.0.1<41287> with status=12 opcode=0 len=0 vendor err 129 (Send)\
 localGid fe80::2 remoteGids fe80::1 hca mlx5_0
node1: Test NCCL failure common.cu:401 'remote process exited or there was a network error / '
"""
DOWN = "node0:4100:4102 [0] {level} NET/IB : {device}Got async event : port error\n"


@pytest.mark.parametrize("level", ["NCCL INFO", "x.cc:1 NCCL WARN"])
@pytest.mark.parametrize("device", ["", "mlx5_0:1 "])
@pytest.mark.parametrize("kind", ["IB", "RoCE"])
def test_headline_names_rank_and_port(
    tmp_path: Path, busbar: Command, level: str, device: str, kind: str
) -> None:
    event = DOWN.format(level=level, device=device)
    path = written(tmp_path / "run.log", RANKS.format(event=event, kind=kind))
    first = busbar("explain", path).out.splitlines()[0]
    port = "mlx5_0:1 Got async event" if device else "async event"
    assert first.startswith(f"failed: rank 0 (node0, GPU 0): {port} : port error; then fabric-")
    path.write_text(RANKS.format(event="", kind=kind))
    out = busbar("explain", path).out
    headline, next_step = out.splitlines()[:2]
    assert headline.startswith("failed: rank 1 (node1, GPU 0): NET/IB: Got completion from peer")
    assert headline.count("fe80::1") == headline.count("fe80::2") == 1
    assert ("RoCE" in next_step) == (kind == "RoCE")
    assert ("cable" in next_step) == (kind == "IB")
    assert "note other-program" not in out  # the line names a process of the run


def test_a_kernel_log_names_the_port(tmp_path: Path, busbar: Command) -> None:
    event = "mlx5_core 0000:3b:00.0: Port module event: module 0, Cable unplugged"
    path = written(tmp_path / "kernel.log", f"2026-11-25T03:12:21+0000 n1 kernel: {event}\n")
    assert busbar("explain", path).out.startswith(f"degraded: {event}\n")
