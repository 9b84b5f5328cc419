# SPDX-License-Identifier: MIT
"""Causes between nodes and in RCCL, from the wording that the tools' documentation gives."""

from __future__ import annotations

from typing import Any

from busbar.explain import Source, explain
from busbar.site import load
from busbar.verdict import Verdict
from tests.cases import cases

from .outputs import ids, nccl_table, run


# ---- between nodes
def net(way: str, *, nodes: int = 2) -> str:
    text = (
        f"node0:1000:9 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes {nodes} localRanks 8"
        f" localRank 0 MNNVL 0\n"
    )
    text += f"node0:1000:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/{way}\n"
    return (
        text
        + "node0:1000:9 [0] NCCL INFO comm 0x1 rank 0 nranks 16 cudaDev 0 busId 60 commId 0x1 -"
        " Init COMPLETE\n"
    )


def test_rails_from_the_log_alone() -> None:
    def ends(send: int, receive: int) -> str:
        return (
            f"node0:1000:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via"
            f" NET/IB/{send}/GDRDMA\n"
            f"node1:1008:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via"
            f" NET/IB/{receive}/GDRDMA\n"
        )

    falling = {1 << 26: 190.0, 1 << 28: 188.0, 1 << 30: 120.0}
    table = nccl_table(falling, ranks=16, nodes=2, gpu="NVIDIA H100 80GB HBM3")
    crossed = run(table, ends(0, 3))
    assert ids(crossed) == {"rail-mismatch", "ecmp-collision"}
    aligned = run(table, ends(2, 2))
    assert ids(aligned) == {"ecmp-collision"}
    flat = run(
        nccl_table({1 << 26: 190.0, 1 << 30: 191.0}, ranks=16, nodes=2, gpu="X"), ends(0, 3)
    )
    assert not flat.causes


def test_no_rail_is_crossed_by_a_nic_that_is_not_used() -> None:
    """Without lines of connections, the NICs near the GPUs are a guess; the list refutes it."""
    site = "h20-roce"
    ring = "node0:1000:9 [0] NCCL INFO Channel 00/01 : 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n"
    table = nccl_table({1 << 30: 48.0}, ranks=16, nodes=2, gpu="NVIDIA H20")
    using = (
        "node0:1000:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
    )
    assert "rail-mismatch" in ids(run(table, ring, site=site))
    assert ids(run(table, using + ring, site=site)) == {"nic-count-short"}


# ---- EFA: old and new wording
def efa(
    provider: str,
    nics: int,
    *,
    new: bool = False,
    topology: str = "p4d-24xl-topo.xml",
    platform: str = "p4d.24xlarge",
) -> str:
    say = "node0:1000:9 [0] NCCL INFO NET/OFI "
    selected = (
        f"Selected provider is {provider}, fabric is {provider} (found {nics} nics)"
        if new
        else f"Selected Provider is {provider} (found {nics} nics)"
    )
    lines = [
        "Initializing aws-ofi-nccl 1.14.0" if new else "Initializing aws-ofi-nccl 1.7.4-aws",
        "Using CUDA runtime version 12020",
        "Configuring AWS-specific options",
        selected,
        f"Running on {platform} platform, Setting NCCL_TOPO_FILE environment variable to"
        f" /opt/xml/{topology}",
    ]
    return "".join(say + line + "\n" for line in lines)


TABLE_16 = nccl_table(
    {1 << 28: 70.0, 1 << 30: 78.0}, ranks=16, nodes=2, gpu="NVIDIA A100-SXM4-80GB"
)


@cases("new", [False, True])
@cases(
    ("log", "cause"),
    [
        ({"provider": "efa", "nics": 4}, None),
        ({"provider": "efa", "nics": 2}, "nic-count-short"),
        ({"provider": "tcp", "nics": 4}, "ofi-provider-wrong"),
        ({"provider": "sockets", "nics": 4}, "ofi-provider-wrong"),
        (
            {"provider": "efa", "nics": 4, "topology": "p5.48xl-topo.xml"},
            "ofi-topology-file-missing",
        ),
        (
            {
                "provider": "efa",
                "nics": 16,
                "topology": "p5.48xl-topo.xml",
                "platform": "p5.48xlarge",
            },
            "nic-count-short",
        ),
        (
            {
                "provider": "efa",
                "nics": 32,
                "topology": "p5.48xl-topo.xml",
                "platform": "p5.48xlarge",
            },
            None,
        ),
    ],
)
def test_efa(log: dict[str, Any], cause: str | None, new: bool) -> None:
    table = nccl_table({1 << 30: 78.0}, ranks=16, nodes=2, gpu="unknown GPU")
    found = run(efa(new=new, **log) + net("AWS Libfabric/0/GDRDMA"), table)
    assert ids(found) == ({cause} if cause else set())


def test_a_connection_has_two_ends() -> None:
    """Each end prints a line; NCCL's version is not that of nccl-tests."""
    ends = "".join(
        f"node{end}:100{end}:9 [0] NCCL INFO Channel 0{channel}/0 : 0[0] -> 8[0] [{way}] via"
        " NET/Socket/0\n"
        for channel in (0, 1)
        for end, way in enumerate(("send", "receive"))
    )
    table = nccl_table({1 << 30: 5.0}, ranks=16, nodes=2, gpu="NVIDIA H100 80GB HBM3")
    found = run("node0:1000:9 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n", ends, table)
    assert found.causes[0].summary == "NCCL runs over TCP, 2 connections"
    assert found.version is None
    (note,) = [note for note in found.notes if note.id == "no-band"]
    assert "pass --site: such GPUs have dgx-h100, " in note.summary


def test_a_site_of_another_vendor_gives_no_band() -> None:
    table = nccl_table({1 << 30: 5.0}, ranks=16, nodes=2, gpu="NVIDIA H100 80GB HBM3")
    found = run(table, site="mi250x")
    (note,) = [note for note in found.notes if note.id == "other-vendor"]
    assert "NVIDIA H100 80GB HBM3, which site mi250x does not have" in note.summary
    assert found.site is None
    assert found.verdict is Verdict.UNJUDGED


@cases(
    ("gpu", "site", "other"),
    [
        ("NVIDIA H100 80GB HBM3", "dgx-h200", "NVIDIA H200"),
        ("AMD Instinct MI300A", "mi300x", "AMD Instinct MI300X"),
        ("NVIDIA H100 NVL", "dgx-h100", None),
        ("NVIDIA A100-SXM4-40GB", "p4de", None),
        ("NVIDIA Graphics Device", "dgx-h200", None),
    ],
)
def test_a_site_with_another_model_is_noted(gpu: str, site: str, other: str | None) -> None:
    found = run(nccl_table({1 << 30: 5.0}, ranks=16, nodes=2, gpu=gpu), site=site)
    notes = [note.summary for note in found.notes if note.id == "other-gpus"]
    said = f"{gpu}, which site {site} does not have: its bands are those of {other}"
    assert notes == ([f"the output is from {said}"] if other else [])


def test_a_table_of_an_unnamed_collective() -> None:
    table = TABLE_16.replace("sum", "none")
    (note,) = [note for note in run(table, site="p4de").notes if note.id == "no-band"]
    assert "site p4de: the log does not name its collective: keep" in note.summary
    named = Source.from_text("all_reduce.log", table)
    (found,) = explain([named], site=load("p4de"))
    assert "no-band" not in {note.id for note in found.notes}


def test_efa_plugin_missing() -> None:
    log = "node0:1000:9 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so\n" + net(
        "Socket/0"
    )
    assert ids(run(log, TABLE_16, site="p4de")) == {"nccl-socket-fallback", "ofi-plugin-missing"}


def test_efa_without_gpudirect() -> None:
    found = run(efa("efa", 4) + net("AWS Libfabric/0"), TABLE_16, site="p4d")
    assert "gdr-off" in ids(found)


# ---- RCCL
def test_rccl_on_two_gpus() -> None:
    table = nccl_table({1 << 28: 20.0, 1 << 30: 21.0}, ranks=2, gpu="AMD Instinct MI300X")
    log = (
        "node0:1000:9 [0] NCCL INFO 8 coll channels, 8 nvls channels, 8 p2p channels, 4 p2p"
        " channels per peer\n"
    )
    found = run(log, table, verdict=Verdict.DEGRADED)
    assert "rccl-few-gpus-few-channels" in ids(found)
