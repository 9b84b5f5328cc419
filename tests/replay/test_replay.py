# SPDX-License-Identifier: MIT
"""The checks that run tools of others, through ReFrame, on recorded output."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from busbar.verdict import Verdict, combined

pytestmark = pytest.mark.run

QUICK = "xccl%size_set=quick%collective"
ALL_REDUCE = ("-t", "gate", "-n", f"{QUICK}=all_reduce")
MODES = {"xccl_mscclpp", "xccl_few", "xccl_cpx"}
SECRET = "not-to-be-kept-8f2b61c7"


def named(*patterns):
    """Options of ``busbar check`` for some checks."""
    return [part for pattern in patterns for part in ("-n", pattern)]


ON_A_NODE = named(
    *("pt2pt%size_set=quick", "pt2pt_data", "pt2pt_pairs", "collective%size_set=quick"),
    *("xccl%size_set=quick", "fabric_ucx_host", "fabric_ucx_gpu"),
    *(f"collective_node%size_set=full%bench=osu_{name}" for name in ("allreduce", "allgather")),
)


def wrong(document, check=""):
    """(check, pair, verdict, message) of what did not pass."""
    return [
        (row["check"].split(" ")[0], row["pair"], row["verdict"], row["message"])
        for row in document["results"]
        if row["verdict"] not in ("pass", "unjudged") and check in row["check"]
    ]


def verdicts(document):
    """The verdict of each check with its parameters."""
    found = defaultdict(list)
    for row in document["results"]:
        found[row["check"]].append(Verdict(row["verdict"]))
    return {check: combined(rows) for check, rows in found.items()}


def causes(document):
    return {cause["id"] for cause in document["causes"]}


def names(document):
    return {check.split(" ")[0] for check in verdicts(document)}


def test_healthy_h200(replay, tmp_path):
    status, document = replay("h200x4-healthy", *ON_A_NODE, DEPLOY_TOKEN=SECRET, TRACE=SECRET)
    assert wrong(document) == []
    assert status == 0
    assert names(document) == {
        *("pt2pt", "pt2pt_data", "pt2pt_pairs", "collective", "xccl"),
        *("collective_node", "fabric_ucx_host", "fabric_ucx_gpu"),
    }
    assert len(verdicts(document)) == 3 + 1 + 1 + 5 + 2 + 6 + 1 + 1
    assert document["causes"] == []
    judged = [row for row in document["results"] if row["typical"]]
    assert {row["metric"] for row in judged} == {"bandwidth", "busbw", "latency"}
    pairs = {row["pair"] for row in judged if row["check"].startswith("pt2pt %")}
    assert pairs == {"0->1", "0->2", "0->3"}

    everything = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not [path for path in everything if SECRET.encode() in path.read_bytes()]
    assert SECRET not in json.dumps(document)
    said = [p for p in everything if p.name == "rfm_job.out" and b"TEST DOUBLE" in p.read_bytes()]
    assert len(said) == 20


OWN_PROGRAMS = named("gpu_aware", "link_matrix", "memory", "framework")


def test_our_programs_on_healthy_h100(replay):
    status, document = replay("h100x2-healthy", *OWN_PROGRAMS)
    assert (wrong(document), status) == ([], 0)
    assert names(document) == {*OWN_PROGRAMS[1::2]}
    assert {*verdicts(document).values()} == {Verdict.PASS}


def test_our_programs_on_slow_h100(replay):
    status, document = replay("h100x2-slow", *OWN_PROGRAMS, "--max-retries=0")
    assert status == 1
    degraded = dict.fromkeys(("framework", "gpu_aware", "link_matrix"), Verdict.DEGRADED)
    found = {check.split()[0]: verdict for check, verdict in verdicts(document).items()}
    assert found == {**degraded, "memory": Verdict.FAILED}
    assert causes(document) == {"ucx-no-gpu-transport", "nccl-p2p-off", "too-few-gpus"}


def test_the_callers_order_of_gpus_does_not_reach_a_job(replay):
    """Ranks say what they see: in this order each would be judged by the links of another GPU."""
    options = named("pt2pt_pairs", "xccl%size_set=quick%collective=all_reduce")
    status, document = replay("h200x4-healthy", *options, CUDA_VISIBLE_DEVICES="3,2,1,0")
    assert wrong(document) == []
    assert status == 0
    assert names(document) == {"pt2pt_pairs", "xccl"}


def test_no_check_passes_on_slow_or_dead_runs(replay):
    status, document = replay("h200x4-slow", *ON_A_NODE, "-n", "pt2pt_host", "--max-retries=0")
    assert status == 1
    found = verdicts(document)
    assert len(found) == 20 + 2
    host_memory = {verdict for check, verdict in found.items() if "pt2pt_host" in check}
    assert host_memory == {Verdict.DEGRADED, Verdict.FAILED}
    assert not [check for check, verdict in found.items() if verdict is Verdict.PASS]
    messages = wrong(document)
    assert any("0->2" in pair and verdict == "impossible" for _, pair, verdict, _ in messages)
    assert any("osu_bw: exit status" in message for *_, message in messages)
    assert any(check == "pt2pt" and " us, band" in message for check, _, _, message in messages)
    assert any("SHM/direct/direct" in message for *_, message in messages)
    assert any("1 GiB" in message and "band" in message for *_, message in messages)
    assert causes(document) >= {
        *("mpi-collective-not-gpu-aware", "nccl-p2p-off", "nccl-few-channels", "same-gpu"),
        *("ucx-no-gpu-transport", "ucx-not-usable", "nccl-too-few-gpus"),
    }


@pytest.mark.parametrize(
    ("case", "checks", "slow"),
    [
        ("h200x4-without-bands", [f"{QUICK}=all_{name}" for name in ("gather", "reduce")], True),
        ("h100x2-without-bands", ["framework"], False),
    ],
)
def test_collectives_of_which_no_band_is_known(replay, case, checks, slow):
    """The model judges them."""
    status, document = replay(case, *named(*checks))
    assert status == slow
    found = sorted(verdict.value for verdict in verdicts(document).values())
    assert found == ["degraded"] * slow + ["pass"]
    assert {pair.split()[0] for _, pair, *_ in wrong(document)} == (
        {"all_reduce"} if slow else set()
    )


def test_a_stack_of_one_benchmark(replay):
    status, document = replay("h200x4-text-only", *ALL_REDUCE)
    assert wrong(document) == []
    assert status == 0
    assert len([row for row in document["results"] if row["typical"]]) == 2 * 6
    skipped = {row["check"].split(" ")[0]: row["reason"] for row in document["skipped"]}
    assert "+collectives" in skipped.get("collective", "+collectives")


def test_the_published_range_of_sizes_and_host_memory(replay):
    status, document = replay(
        "h200x4-published-command", *named("pt2pt%size_set=full%bench=osu_bw", "pt2pt_host")
    )
    assert wrong(document) == []
    assert status == 0
    rows = [row for row in document["results"] if row["check"].startswith("pt2pt %")]
    assert len(rows) == 12 * 7  # every ordered pair, 4 MiB to 256 MiB
    assert len([row for row in document["results"] if "pt2pt_host" in row["check"]]) == 2 * 3


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("mi250x-sdma0", "pt2pt%size_set=quick%bench=osu_bw"),
        ("mi250x-sdma1", "pt2pt_sdma%size_set=quick"),
    ],
)
def test_mi250x_as_published(replay, case, name):
    _, document = replay(case, "-t", "gate", "-n", name)
    check = name.split("%", maxsplit=1)[0] + " "
    rows = [row for row in document["results"] if row["check"].startswith(check)]
    assert len([row for row in rows if row["gb_per_s"]]) == 7
    # The published outputs are of OSU alone: without UCX's log nobody knows how the data went.
    assert {message for _, _, _, message in wrong(document, check)} == {
        "the log of ucx does not show the transport of the data"
    }


def test_p4d_as_published(replay):
    """The message transfer passes; the table is that of reduce_scatter, without NCCL's log."""
    _, document = replay(
        "p4d", *named("fabric_ofi", "xccl_nodes%size_set=nightly%collective=reduce_scatter")
    )
    assert wrong(document, "fabric_ofi") == []
    assert {message for *_, message in wrong(document)} == {
        "the log of nccl does not show the transport of the data"
    }
    judged = {row["bytes"]: row["verdict"] for row in document["results"] if row["typical"]}
    # The plugin of this run, aws-ofi-nccl 1.7.4, takes three times as long below.
    assert {verdict for nbytes, verdict in judged.items() if nbytes >= 1 << 27} == {"pass"}
    assert set(judged.values()) == {"pass", "unjudged"}


def test_h20_before_the_repair_dips(replay):
    status, document = replay(
        "h20-before", "-t", "full", "-n", "xccl_nodes%size_set=full%collective=all_reduce"
    )
    assert status == 1
    messages = [message for _, _, verdict, message in wrong(document) if verdict == "degraded"]
    assert any("bus bandwidth falls from 48.23 GB/s" in message for message in messages)
    assert any("16 GiB" in message and ", band " in message for message in messages)


def test_modes_of_rccl_in_use(replay):
    status, document = replay("mi300x", *named(*MODES))
    assert wrong(document) == []
    assert status == 0
    assert names(document) == MODES
    fast = [row for row in document["results"] if "mscclpp" in row["check"] and row["typical"]]
    assert max(row["gb_per_s"] for row in fast) > 0.9 * 340


def test_modes_of_rccl_that_are_set_and_not_in_use(replay):
    status, document = replay("mi300x-degraded", *named(*MODES))
    assert status == 1
    assert Verdict.PASS not in verdicts(document).values()
    said = {(check, message) for check, _, _, message in wrong(document)}
    assert said >= {
        ("xccl_mscclpp", "the mode is not on: MSCCL++ is off: Feature not enabled. MSCCL++ not"
         " compiled into library."),
        ("xccl_few", "the mode is not on: requested 32 channels, but there are 24"),
        ("xccl_few", "the mode is not on: the log does not show NCCL_MIN_NCHANNELS=32"),
        ("xccl_cpx", "the mode is not on: RCCL joined 8 ranks, not 64"),
    }  # fmt: skip
    assert "rccl-msccl-off" in causes(document)


P5 = named("fabric_ofi", "xccl_nodes%size_set=full%collective=all_reduce")
CRAY = named("pt2pt_nodes", "xccl_nodes%size_set=nightly%collective=all_reduce")


@pytest.mark.parametrize(
    ("case", "options", "checks"),
    [("p5", P5, {"fabric_ofi", "xccl_nodes"}), ("cray", CRAY, {"pt2pt_nodes", "xccl_nodes"})],
)
def test_two_nodes(replay, case, options, checks):
    status, document = replay(case, *options)
    assert wrong(document) == []
    assert status == 0
    assert names(document) == checks


def test_a_nic_missing_and_gpudirect_off(replay):
    status, document = replay("p5-degraded", *P5)
    assert status == 1
    assert Verdict.PASS not in verdicts(document).values()
    assert causes(document) == {"gdr-off", "nic-count-short"}


def test_sockets_in_place_of_slingshot(replay):
    status, document = replay("cray-degraded", *CRAY)
    assert status == 1
    assert set(verdicts(document).values()) == {Verdict.DEGRADED}
    assert "nccl-socket-fallback" in causes(document)
