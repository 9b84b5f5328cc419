# SPDX-License-Identifier: MIT
"""The same runs in other words, on other sites, with other settings: what must and must not
change."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.explain import Source, explain
from busbar.redact import redact
from busbar.verdict import Verdict

from .outputs import BANNER, ids, load, nccl_table, run

DATA = Path(__file__).parents[1] / "data"
SLOW = nccl_table({1 << 28: 120.0, 1 << 30: 130.0})
FAST = nccl_table({1 << 28: 337.0, 1 << 30: 356.0})
H100 = "NVIDIA H100 80GB HBM3"


def env(name: str, value: str) -> str:
    return f"node0:1000:1000 [0] NCCL INFO {name} set by environment to {value}.\n"


def channels(count: int) -> str:
    return (
        f"node0:1000:1010 [0] NCCL INFO {count} coll channels, 0 collnet channels, 0 nvls"
        f" channels, {count} p2p channels, {count} p2p channels per peer\n"
    )


# ---- settings that do not bind
@pytest.mark.parametrize("log", ["", channels(24)])
@pytest.mark.parametrize("name", ["NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"])
def test_limit_that_takes_nothing_away_is_no_cause(name: str, log: str) -> None:
    assert ids(run(env(name, "32") + log + SLOW)) == {"below-band-unexplained"}


def test_limit_above_the_channels_in_use_is_no_cause() -> None:
    assert ids(run(env("NCCL_MAX_NCHANNELS", "20") + channels(18) + SLOW)) == {
        "below-band-unexplained"
    }


def test_limit_that_binds_is_a_cause() -> None:
    assert ids(run(env("NCCL_MAX_NCHANNELS", "4") + channels(4) + SLOW)) == {"nccl-few-channels"}


def test_forced_algorithm_that_cannot_run_is_named() -> None:
    head = FAST.split("   268435456")[0].rstrip(" ")
    found = run(
        head
        + env("NCCL_ALGO", "NVLS")
        + "node0:1000:1000 [0] enqueue.cc:2012 NCCL WARN Error : no algorithm/protocol available"
        " for function AllReduce with datatype ncclFloat32. NCCL_ALGO was set to NVLS.\n"
        "node0: Test NCCL failure common.cu:409 'invalid usage'\n"
        " .. node0 pid 1000: Test failure common.cu:585\n"
        "exit_status=3\n"
    )
    assert found.verdict is Verdict.FAILED
    assert ids(found) == {"nccl-forced-algorithm"}


# ---- CPU sets in the words of other launchers and versions
@pytest.mark.parametrize(
    "line",
    [
        "[node0:900] MCW rank {0} bound to socket 0[core 3[hwt 0-1]]: [./././BB][./././.]",
        "[node0:900] Rank {0} bound to package[0][core:3]",
        "cpu-bind=MASK - node0, task  {0}  {0} [100{0}]: mask 0x8 set",
        "node0:100{0}:1010 [{0}] NCCL INFO Setting affinity for GPU {0} to 08",
    ],
)
def test_one_cpu_for_all_ranks(line: str) -> None:
    lines = "".join(line.format(rank) + "\n" for rank in range(4))
    assert ids(run(lines + SLOW)) == {"cpu-affinity"}


@pytest.mark.parametrize(
    "line",
    [
        "[node{0}:900] MCW rank {0} bound to socket 0[core 3[hwt 0]]: [./././B][./././.]",
        "cpu-bind=MASK - node{0}, task  {0}  0 [100{0}]: mask 0xff set",
        "node0:100{0}:1010 [{0}] NCCL INFO Setting affinity for GPU {0} to ffffffff,ffffffff",
        "node0:100{0}:1010 [{0}] NCCL INFO Setting affinity for GPU {0} to 0-31,64-95",
    ],
)
def test_ranks_with_cpus_of_their_own_are_not_crowded(line: str) -> None:
    lines = "".join(line.format(rank) + "\n" for rank in range(4))
    causes = run(lines + SLOW).causes
    assert "cpu-affinity" not in {c.id for c in causes if c.confidence == "certain"}


# ---- EFA
def efa(
    instance: str = "p5.48xlarge", *, nics: int = 32, options: bool = True, rate: float = 440.0
) -> str:
    """A whole log of 16 ranks on two nodes, then a table, at full speed by default."""
    text = ""
    for rank in range(16):
        prefix = f"node{rank // 8}:{1000 + rank}:{2000 + rank} [{rank % 8}] NCCL INFO "
        said = [
            "NCCL version 2.27.7+cuda12.8",
            "NET/OFI Initializing aws-ofi-nccl 1.16.2",
            "NET/OFI Using CUDA driver version 13000 with runtime 12080",
            *(["NET/OFI Configuring AWS-specific options"] if options else []),
            f"NET/OFI Running on {instance} platform, topology file /opt/xml/p5.48xl-topo.xml",
            f"NET/OFI Selected provider is efa, fabric is efa-direct (found {nics} nics)",
            "Using network Libfabric",
        ]
        if rank in (7, 15):
            to = (rank + 1) % 16
            said.append(
                f"Channel 00/0 : {rank}[{rank % 8}] -> {to}[{to % 8}] [send] via"
                " NET/Libfabric/0/GDRDMA"
            )
        said.append(
            f"ncclCommInitRankConfig comm 0x{rank + 1:x} rank {rank} nranks 16 cudaDev {rank % 8}"
            f" busId {rank:x} commId 0x1 - Init COMPLETE"
        )
        text += "".join(prefix + line + "\n" for line in said)
    rings = " ".join(map(str, range(16)))
    text += f"node0:1000:2000 [0] NCCL INFO Channel 00/01 : {rings}\n"
    return text + nccl_table({1 << 30: rate}, ranks=16, nodes=2, gpu=H100)


@pytest.mark.parametrize("site", [None, "p5"])
def test_whole_efa_run_is_healthy(site: str | None) -> None:
    found = run(efa(), site=site)
    assert (found.verdict, ids(found)) == (Verdict.PASS, set())


@pytest.mark.parametrize("nics", [4, 8, 16, 31])
def test_nics_of_a_site_are_counted_not_their_groups(nics: int) -> None:
    assert ids(run(efa(nics=nics), site="p5")) == {"nic-count-short"}


def test_options_of_aws_missing_from_a_whole_log() -> None:
    assert ids(run(efa(options=False))) == {"ofi-aws-options-missing"}


def test_cuda_runtime_of_newer_plugins_is_compared() -> None:
    assert ids(run(efa(), asked={"cuda": "12.8"})) == set()
    assert ids(run(efa(), asked={"cuda": "11.7"})) == {"cuda-version-mismatch"}


def test_efa_and_sockets_have_no_rails() -> None:
    assert ids(run(efa(rate=40.0), site="p5")) == {"below-band-unexplained"}


def test_message_transfer_that_stops_is_cut() -> None:
    text = (DATA / "p4d-efa/nccl_message_transfer.log").read_text()
    cut = "".join(line for line in text.splitlines(True) if "completions" not in line)
    assert ids(run(cut)) == {"truncated-output"}


# ---- rails
def test_nics_are_named_by_the_list_of_the_log() -> None:
    names = " ".join(f"[{i}]rocep{i}s0:1/RoCE" for i in range(4))
    log = f"node0:1000:1100 [0] NCCL INFO NET/IB : Using {names} [RO]; OOB bond0:10.0.0.1<0>\n"
    for rank, to, nic, end in ((7, 8, 3, "send"), (7, 8, 0, "receive")):
        speaker = rank if end == "send" else to
        log += (
            f"node{speaker // 8}:{1000 + speaker}:1100 [{speaker % 8}] NCCL INFO Channel 00/0 :"
            f" {rank}[{rank % 8}] -> {to}[{to % 8}] [{end}] via NET/IB/{nic}/GDRDMA\n"
        )
    table = nccl_table({1 << 28: 48.0, 1 << 29: 40.0, 1 << 30: 34.0}, ranks=16, nodes=2, gpu=H100)
    found = run(log + table)
    assert ids(found) == {"rail-mismatch", "ecmp-collision"}
    rails = next(c for c in found.causes if c.id == "rail-mismatch")
    assert rails.details == {"pairs": ["7-8"], "nics": ["rocep0s0<->rocep3s0"]}


# ---- readings above the limit
def test_reading_just_above_the_links_is_no_rate_of_one_gpu() -> None:
    assert ids(run(BANNER + "268435456  512000.00\n", site="h200x4")) == {"above-limit"}
    assert ids(run(BANNER + "268435456  1997025.52\n", site="h200x4")) == {"same-gpu"}


def test_kernel_rate_judged_for_the_copy_engine_is_no_rate_of_one_gpu() -> None:
    text = (DATA / "mi250x/osu_bw_sdma0_gcd0_gcd1.log").read_text().split("\n", 1)[1]
    (found,) = explain([Source.from_text("x", text)], site=load("mi250x"), engine="sdma")
    assert ids(found) == {"above-limit"}


# ---- MPI
def test_transports_that_leave_out_gpus_are_likely_without_a_log_of_endpoints() -> None:
    setting = "[1.5] [vm:1:0] parser.c:1998 UCX  INFO  UCX_* env variable: UCX_TLS={}\n"
    rows = BANNER + "134217728  18000.00\n268435456  19000.00\n"
    for value in ("sm,self,cuda_copy", "^cuda_ipc"):
        found = run(setting.format(value) + rows, site="h200x4")
        assert [(c.id, c.confidence) for c in found.causes] == [("ucx-no-gpu-transport", "likely")]
    found = run(setting.format("sm,self,cuda") + rows, site="h200x4")
    assert ids(found) == {"below-band-unexplained"}


def test_old_pmi_of_slurm() -> None:
    found = run(
        "[n1:111766] PMI_Get_universe_size [pmix_s2.c:288:s2_init]: Operation failed\n"
        "srun: error: n1: tasks 0-1: Exited with exit code 1\n"
    )
    assert ids(found) == {"pmix-mismatch"}


# ---- labels before lines
@pytest.mark.parametrize(
    "label",
    [
        "2026-11-21T07:23:34.123456Z ",
        "2026-11-21 07:23:34 ",
        "[3] ",
        "2026-11-21T07:23:34+00:00 0: ",
    ],
)
def test_label_before_each_line(label: str) -> None:
    found = run("".join(label + line + "\n" for line in FAST.splitlines()))
    assert (found.verdict, len(found.readings)) == (Verdict.PASS, 8)


# ---- evidence stands in the file
def test_rows_cut_by_log_lines_cite_a_line_of_the_file() -> None:
    path = DATA / "h200x4/nccl_p2p_disabled.log"
    lines = path.read_text().split("\n")
    (found,) = explain([path])
    evidence = [r.evidence for r in found.readings if r.evidence]
    assert evidence
    for line in evidence:
        assert line.text.strip() in lines[line.line - 1]


@pytest.mark.parametrize("indent", [1, None])
def test_json_cites_lines_of_the_file(indent: int | None) -> None:
    document = json.loads((DATA / "h200x4/nccl_all_reduce_single_process.json").read_text())
    document["env"] += ["NCCL_P2P_DISABLE=1", "DB_PASSWORD=verysecret"]
    document["out_of_bounds"]["count"] = 7
    document["results"][3]["in_place"]["nwrong"] = 7.0
    text = "\n" + json.dumps(document, indent=indent)
    (found,) = explain([Source.from_text("x.json", text)])
    assert ids(found) == {"nccl-wrong-data"}
    lines = text.split("\n")
    evidence = [e for c in found.causes for e in c.evidence]
    assert any("7" in e.text for e in evidence)
    for line in [*evidence, *(r.evidence for r in found.readings if r.evidence)]:
        assert line.text in lines[line.line - 1]
    assert "verysecret" not in json.dumps(to_json(found))


def test_json_with_an_error_is_no_pass() -> None:
    document = json.loads((DATA / "h200x4/nccl_all_reduce_single_process.json").read_text())
    document["errors"] = ["Test NCCL failure: unhandled system error"]
    assert ids(run(json.dumps(document))) == {"rank-died"}


# ---- secrets
def test_settings_survive_redaction() -> None:
    line = "$ mpirun -x UCX_TLS=sm,self,cuda -x NCCL_IB_HCA='mlx5_0:1,mlx5_2:1' osu_bw -m 1:4 D D"
    assert redact(line) == line
    assert not re.search("redacted", redact(FAST))


# ---- numbers that are none
@pytest.mark.parametrize("value", ["nan", "inf", "0.00"])
def test_reading_that_is_no_rate_is_named(value: str) -> None:
    found = run(FAST.replace(" 356.00 ", f" {value} "))
    assert (found.verdict, ids(found)) == (Verdict.FAILED, {"invalid-reading"})
    json.dumps(to_json(found), allow_nan=False)


@pytest.mark.parametrize(
    "line",
    ["# Avg bus bandwidth    : 247.7.00", "vm:1:1 [0] NCCL INFO     + NVL[370.8.1] - NVS/0"],
)
def test_damaged_number_is_passed_over(line: str) -> None:
    assert run(f"{line}\n{FAST}").verdict is Verdict.PASS


# ---- RCCL
def test_sizes_above_the_threshold_are_not_served_by_mscclpp() -> None:
    setting = env("RCCL_MSCCLPP_ENABLE", "1")
    gpu = "AMD Instinct MI300X"
    large = run(
        setting + nccl_table({1 << 24: 5.0, 1 << 26: 5.0}, ranks=8, gpu=gpu),
        site="mi300x",
        verdict=Verdict.DEGRADED,
    )
    assert ids(large) == {"rccl-msccl-off"}
    served = run(
        setting + nccl_table({1 << 18: 5.0, 1 << 19: 5.0}, ranks=8, gpu=gpu),
        site="mi300x",
        verdict=Verdict.DEGRADED,
    )
    assert ids(served) == {"below-band-unexplained"}


@pytest.mark.parametrize(
    "data", [b"\x1f\x8b", b"\x1f\x8b\x08\x00", b"\x1f\x8b\x08" + b"\xff" * 40]
)
def test_damaged_archive_is_a_clear_error(data: bytes) -> None:
    with pytest.raises(BusbarError, match="no known tool output"):
        explain([Source.from_text("x.gz", data)])


@pytest.mark.parametrize(("rocm", "advised"), [("6.4.1.0-83", True), ("7.13.0.0-1", False)])
def test_mscclpp_is_gone_from_rocm_7_13(rocm: str, advised: bool) -> None:
    banner = f"RCCL version : 2.28.3-HEAD:64f5e1b\nHIP version  : 7\nROCm version : {rocm}\n"
    table = nccl_table({1 << 24: 5.0, 1 << 26: 5.0}, ranks=8, gpu="AMD Instinct MI300X")
    text = banner + env("RCCL_MSCCLPP_ENABLE", "1") + table
    found = run(text, site="mi300x", verdict=Verdict.DEGRADED)
    assert ids(found) == {"rccl-msccl-off"}
    assert ("RCCL_MSCCLPP_THRESHOLD" in found.causes[0].remedy) is advised
    assert ("has no MSCCL++" in found.causes[0].summary) is not advised


@pytest.mark.parametrize(
    ("version", "line", "phrase"),
    [
        (
            "MPICH Version:      4.2.1\n",
            "PMIX ERROR: UNREACHABLE in file x.c\n",
            "pmi2 for MPICH before 5",
        ),
        (
            "MPICH Version:      5.0.0\n",
            "PMIX ERROR: UNREACHABLE in file x.c\n",
            "PMI-2 is deprecated there",
        ),
        (
            "NCCL version 2.18.3+cuda12.2\n",
            "{}Got completion with status=12\n",
            "NCCL_IB_GID_INDEX, UCX",
        ),
        (
            "NCCL version 2.27.3+cuda12.9\n",
            "{}Got completion with status=12\n",
            "unset NCCL_IB_GID_INDEX",
        ),
        ("", "{}Got completion with status=12\n", "NCCL_IB_GID_INDEX, UCX"),
        (
            "NCCL version 2.11.4+cuda11.4\n",
            "{}Call to ibv_reg_mr failed: Bad address\n",
            "from 2.13 on",
        ),
        (
            "NCCL version 2.27.3+cuda12.9\n",
            "{}Call to ibv_reg_mr failed: Bad address\n",
            "with DMA-BUF,",
        ),
    ],
)
def test_remedies_of_versions(version: str, line: str, phrase: str) -> None:
    found = run(version + line.format("n1:4711:4720 [0] net_ib.cc:839 NCCL WARN NET/IB : "))
    assert phrase in found.causes[0].remedy
