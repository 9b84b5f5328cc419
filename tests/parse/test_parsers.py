# SPDX-License-Identifier: MIT
"""Parsers against lines of old and new versions of each tool."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from busbar.parse import launch, nccl_log, ucx_log
from busbar.parse.machine import amd_text
from busbar.parse.messages import match, table
from busbar.parse.text import blocks
from busbar.tools.nccl_tests import parse as nccl_tests
from busbar.tools.nccl_tests.document import read_document
from busbar.tools.nccl_tests.read import rows_of
from busbar.tools.osu import parse as osu
from busbar.tools.ucx_perftest import parse as ucx_perftest

DATA = Path(__file__).parents[1] / "data"


BANNERS = """\
MPI-CUDA Bandwidth Test v7.4: osu_bw 7.4 CUDA bw
MPI-ROCM Bandwidth Test v7.0: osu_bw 7.0 ROCM bw
MPI Bandwidth Test v5.9: osu_bw 5.9 - bw
MPI-CUDA Bi-Directional Bandwidth Test v7.4: osu_bibw 7.4 CUDA bw
MPI-CUDA Latency Test v5.6.3: osu_latency 5.6.3 CUDA latency_us
MPI Multiple Bandwidth / Message Rate Test v7.4: osu_mbw_mr 7.4 - bw
MPI-CUDA Allreduce Latency Test v7.4: osu_allreduce 7.4 CUDA latency_us
MPI-CUDA All-to-All Personalized Exchange Latency Test v7.4: osu_alltoall 7.4 CUDA latency_us
MPI Broadcast Latency Test v5.9: osu_bcast 5.9 - latency_us
MPI Reduce_scatter Latency Test v7.1: osu_reduce_scatter 7.1 - latency_us
NCCL-CUDA Bandwidth Test v7.2: osu_xccl_bw 7.2 CUDA bw
"""


def test_osu_banner() -> None:
    expected = dict(line.split(": ") for line in BANNERS.splitlines())
    found = {title: osu.parse_banner(f"# OSU {title}") for title in expected}
    assert {
        title: banner
        and f"{banner.test} {banner.version} {banner.device or '-'} {banner.quantity}"
        for title, banner in found.items()
    } == expected


def test_osu_rows() -> None:
    assert osu.parse_row("4194304            285624.83") == osu.OsuRow(4194304, 285624.83)
    assert osu.parse_row("8      12.1     11.9    12.3    1000") == osu.OsuRow(
        8, 12.1, others=(11.9, 12.3, 1000)
    )
    assert osu.parse_row("8      12.1     Pass") == osu.OsuRow(8, 12.1, valid=True)
    assert osu.parse_row("8      12.1     Fail") == osu.OsuRow(8, 12.1, valid=False)
    assert osu.parse_row("4194304            569147.63         135695.37") == osu.OsuRow(
        4194304, 569147.63, others=(135695.37,)
    )
    for line in ("4194304", "# Size 1", "12 abc", "", "exit_status=0"):
        assert osu.parse_row(line) is None
    line = "# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)"
    buffers = osu.PATTERNS["buffers"].match(line)
    assert buffers
    assert buffers.groups() == ("D", "H")


def test_nccl_tests_rows_of_every_version() -> None:
    new = "  1048576  262144  float  sum  -1  19.66  53.35  80.02  0  18.54  56.56  84.83  0"
    row = nccl_tests.parse_row(new)
    assert row is not None
    assert row.in_place == nccl_tests.NcclHalf(18.54, 56.56, 84.83, 0)
    without_root = (
        "  1048576  262144  float  sum  19.66  53.35  80.02  4e-07  18.54  56.56  84.83  4e-07"
    )
    row = nccl_tests.parse_row(without_root)
    assert row is not None
    assert (row.root, row.out_of_place.wrong) == (None, 0)
    unchecked = (
        "  1048576  262144  bfloat16  none  0  19.66  53.35  80.02  N/A  18.54  56.56  84.83  N/A"
    )
    row = nccl_tests.parse_row(unchecked)
    assert row is not None
    assert (row.type, row.root, row.out_of_place.wrong) == ("bfloat16", 0, None)
    assert nccl_tests.parse_row("     1048576        262144     float     sum      -1") is None
    assert nccl_tests.PATTERNS["row-start"].match(
        "     1048576        262144     float     sum      -1"
    )


def test_nccl_tests_headers() -> None:
    line = "# nccl-tests version 2.19.6 nccl-headers=22803 nccl-library=22803"
    versions = {"tests": "2.19.6", "headers": "22803", "library": "22803"}
    version = nccl_tests.PATTERNS["version"].match(line)
    assert version
    assert version.groupdict("") == versions
    assert (
        nccl_tests.PATTERNS["version"].match("# rccl-tests: Version develop:ad3d7d8") is not None
    )
    old = "#   Rank  0 Pid   9591 on  n1 device  0 [0x10] NVIDIA A100-SXM4-40GB"
    device = nccl_tests.parse_device(old)
    assert device is not None
    assert (device.bus, device.name) == ("0x10", "NVIDIA A100-SXM4-40GB")
    bounds = nccl_tests.parse_out_of_bounds("# Out of bounds values : 4 FAILED")
    assert bounds == (4, False)


def test_nccl_json() -> None:
    text = (DATA / "h200x4/nccl_all_reduce_single_process.json").read_text()
    run = read_document("run.json", text)
    assert run is not None
    assert ([name for name, _ in run.names], run.ranks) == (["all_reduce"], 4)
    assert [each["library"] for each in run.seen("tests.nccl")] == ["22803"]
    assert rows_of(run)[-1][0].out_of_place.busbw == pytest.approx(364.818954)
    assert run.finished
    assert read_document("x", "{}") is None
    with pytest.raises(ValueError, match="truncated before its first result"):
        read_document("x", '{"version": 3,')


PATHS = {
    b"Channel 00/0 : 0[0] -> 8[1] [receive] via NET/IB/1/GDRDMA": (0, 0, 8, True, "IB", 1, True),
    b"Channel 03/0 : 0[0] -> 8[1] [send] via NET/IB/1(7)/GDRDMA/Shared": (
        3,
        0,
        8,
        False,
        "IB",
        1,
        True,
    ),
    b"Channel 00 : 0[1a000] -> 1[1a000] [receive] via NET/IB/0": (0, 0, 1, True, "IB", 0, False),
    b"Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0": (
        0,
        7,
        8,
        False,
        "AWS Libfabric",
        0,
        False,
    ),
}
MESSAGES = """\
NCCL version 2.18.5+cuda12.2
    nccl.version version=2.18.5 build=cuda12.2
RCCL version : 2.22.3-develop:ab12
    nccl.version version=2.22.3 build=
24 coll channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer
    nccl.channels channels=24
Using network AWS Libfabric
    nccl.network name=AWS_Libfabric
Assigned NET plugin IB to comm
    nccl.network name=IB
NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
    nccl.no-plugin library=libnccl-net.so
NET/Plugin: Could not find: libnccl-net.so
    nccl.no-plugin library=libnccl-net.so
NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)
    nccl.gdr-hca network=IB state=Disabled nic=mlx5_0
AllReduce: 1048576 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..23}
    nccl.algorithm operation=AllReduce nbytes=1048576 algorithm=RING protocol=LL channels=0..23
8388608 Bytes -> Algo 1 proto 2 time 85.5
    nccl.algorithm operation= nbytes=8388608 algorithm=1 protocol=2 channels=
NCCL_ALGO set by environment to Ring
    nccl.env name=NCCL_ALGO value=Ring
NCCL_BUFFSIZE set by environment to 65536.
    nccl.env name=NCCL_BUFFSIZE value=65536
"""
ENDPOINTS = {
    "ucp_worker.c:1783 UCX  INFO    ep_cfg[2]: tag(sysv/memory cma/memory cuda_ipc/cuda)": (
        *("", ("sysv", "cma", "cuda_ipc")),
    ),
    "UCX  INFO    ucp_context_0 intra-node cfg#2 tag(sysv/memory cuda_ipc/cuda)": (
        *("intra-node", ("sysv", "cuda_ipc")),
    ),
    "UCX  INFO  ucp_context_0 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1) am(ud_mlx5/mlx5_1:1)": (
        *("inter-node", ("rc_mlx5", "ud_mlx5")),
    ),
    "UCX  INFO    ep_cfg[1]: tag(tcp/lo tcp/eth0)": ("", ("tcp",)),
}


def test_connections() -> None:
    assert {line: nccl_log.parse_net_path(line) for line in PATHS} == {
        line: nccl_log.NetPath(*path) for line, path in PATHS.items()
    }
    assert {line: ucx_log.parse_endpoint(line) for line in ENDPOINTS} == {
        line: ucx_log.Endpoint(*endpoint) for line, endpoint in ENDPOINTS.items()
    }


def test_nccl_messages() -> None:
    rows = MESSAGES.splitlines()
    for line, message in zip(rows[::2], rows[1::2], strict=True):
        kind, *words = message.split()
        fields = dict(word.replace("AWS_", "AWS ").split("=") for word in words)
        whole = f"n1:1:1 [0] NCCL INFO {line}".encode()
        start = whole.index(nccl_log.INFO) + len(nccl_log.INFO)
        table = [row for row in nccl_log.TABLE if whole.startswith(row.info or (b"\0",), start)]
        found = [(m.kind, dict(m.fields)) for m in match(table, whole[start:])]
        assert (kind, fields) in found, line


@pytest.mark.parametrize(
    ("line", "start"),
    [
        (b"vm:1:1 [0] NCCL INFO x", 0),
        (b"  1024 256 float sum -1vm:1:1 [0] NCCL INFO x", 23),
        (b"8h200-2:1:1 [0] NCCL INFO x", 0),
        (b"  1024 256 float sum -18h200-2:1:1 [0] NCCL INFO x", 23),
    ],
)
def test_a_log_line_glued_to_a_row(line: bytes, start: int) -> None:
    assert nccl_log.process_start(line, [b"vm", b"8h200-2"]) == start


def test_ofi_wording() -> None:
    old = b"NET/OFI Selected Provider is efa (found 4 nics)"
    new = b"NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)"
    oldest = b"NET/OFI Selected Provider is efa"
    assert _providers(old) == [("efa", "", "4")]
    assert _providers(new) == [("efa", "efa-direct", "32")]
    assert _providers(oldest) == [("efa", "", "")]


def _providers(line: bytes) -> list[tuple[str, str, str]]:
    return [(m["provider"], m["fabric"], m["nics"]) for m in match(table("ofi"), line)]


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ("srun -N2 -n4", 2),
        ("srun --nodes=2 -n 4", 2),
        ("srun -N 2-4 -n 4", None),
        ("srun -n 4 --ntasks-per-node=1", 4),
        ("srun -n 4", None),
        ("mpirun -np 4 -npernode 2", 2),
        ("mpirun -np 4 -N 1", 4),
        ("mpirun -n 4 --map-by ppr:2:node", 2),
        ("mpiexec -n 4 -ppn 2", 2),
        ("mpirun -n 4 --map-by ppr:2:socket", None),
    ],
)
def test_nodes_of_a_launch(options: str, nodes: int | None) -> None:
    command = launch.parse_command(f"$ {options} ./osu_bw D D")
    assert command
    assert command.nodes == nodes


def test_command_lines() -> None:
    line = (
        "$ mpirun -n 4 --mca pml ob1 -x UCX_TLS=tcp -x LD_LIBRARY_PATH /opt/omb/osu_bw -m 4:8 D D"
    )
    command = launch.parse_command(line)
    assert command is not None
    assert (command.program, command.ranks) == ("osu_bw", 4)
    assert command.environment == {"OMPI_MCA_pml": "ob1", "UCX_TLS": "tcp"}
    assert command.arguments == ("-m", "4:8", "D", "D")
    assert launch.parse_command("$ ls -l") is None
    assert launch.parse_command('$ mpirun "unclosed') is None
    assert launch.parse_export("$ export HSA_ENABLE_SDMA=0") == ("HSA_ENABLE_SDMA", "0", True)
    assert launch.parse_exit_status(" exit_status=124") == 124


def test_lines_keep_their_numbers_over_blocks() -> None:
    text = "".join(f"{i}\n" for i in range(1, 400_001))
    numbers = {}
    for number, block in blocks(io.BytesIO(text.encode())):
        for offset, line in enumerate(block.split(b"\n")):
            if line:
                numbers[int(line)] = number + offset
    assert all(numbers[i] == i for i in (1, 2, 199_999, 400_000))
    assert len(numbers) == 400_000


def test_ucx_perftest_on_a_machine_with_other_work() -> None:
    """All iterations fell into one interval, and none is left for the last one to average."""
    rows = (
        "[thread 0]     50      0.190 20000.601 20000.601     3199.90    3199.90     50     50",
        "Final:         50      0.190       inf 58662.982        0.00    1090.98      0     17",
    )
    row = ucx_perftest.final_row(rows)
    assert row is not None
    assert row.gb_per_s == pytest.approx(1090.98 * 2**20 / 1e9)


def test_the_start_of_a_process_does_not_depend_on_the_number_of_hosts() -> None:
    class Counted(set[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            raise AssertionError("every host is looked at")

    hosts = Counted({b"gpu1", b"u1", b"other"})
    assert nccl_log.process_start(b"0.5gpu1:10:11 [0] NCCL INFO x", hosts) == 3


def test_text_costs_no_more_than_it_is_long() -> None:
    begin = time.process_time()
    assert ucx_perftest.final_row([" " * 200_000 + "x"]) is None
    assert launch.parse_command("\t" * 200_000) is None
    assert ucx_log.parse_endpoint(f"ep_cfg[1]: tag({'a' * 200_000})") is None
    for read, text in (
        (partial(read_document, "a.json"), "{" + '"busBw"' * 50_000),
        (partial(read_document, "a.json"), '[{"busBw": 1}' + " " * 200_000),
        (amd_text.parse_static, f"GPU: 0\n  A: b{' ' * 200_000}c"),
    ):
        with pytest.raises(ValueError, match=r"JSON|version"):
            read(text)
    assert time.process_time() - begin < 1
