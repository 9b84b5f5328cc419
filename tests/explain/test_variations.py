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

from .outputs import ids, load, nccl_table, run

DATA = Path(__file__).parents[1] / "data"
SLOW = nccl_table({1 << 28: 120.0, 1 << 30: 130.0})
FAST = nccl_table({1 << 28: 337.0, 1 << 30: 356.0})
H100 = "NVIDIA H100 80GB HBM3"


def env(name: str, value: str) -> str:
    return f"node0:1000:1000 [0] NCCL INFO {name} set by environment to {value}.\n"


# ---- settings that do not bind


# ---- CPU sets in the words of other launchers and versions


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


def test_kernel_rate_judged_for_the_copy_engine_is_no_rate_of_one_gpu() -> None:
    text = (DATA / "mi250x/osu_bw_sdma0_gcd0_gcd1.log").read_text().split("\n", 1)[1]
    (found,) = explain([Source.from_text("x", text)], site=load("mi250x"), engine="sdma")
    assert ids(found) == {"above-limit"}


# ---- MPI


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


# ---- RCCL


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
