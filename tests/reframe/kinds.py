# SPDX-License-Identifier: MIT
"""A healthy record of each kind of check, and how it is broken; `test_minimum.py` uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

from busbar import site as sites
from busbar.engine.assertions import Problem
from busbar.engine.launch import BenchLaunch, LaunchOutput, powers
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.expect import COLLECTIVES
from busbar.mpi import SHARED_MEMORY
from busbar.tools.memory import operations
from busbar.tools.nccl_tests import rccl as mode
from busbar.tools.ucx_perftest.request import command
from busbar.verdict import Verdict
from reframe_checks.fabric_ofi import fabric_ofi

from .faults import (
    CRAY,
    DATA,
    GIB,
    H100,
    H200,
    MI300X,
    NONCE,
    SIZE,
    Break,
    Kind,
    events_scaled,
    first,
    of_job,
    perftest,
    placed,
    replaced,
    rows_scaled,
    scaled,
)

CUT = {"metrics": replaced("exit_status=0", "")}
FOUR = {"ranks": replaced('"ranks": 4', '"ranks": 1')}
OSU_ROW = r"^\d+ +([\d.]+)$"
OSU = {
    "ranks": replaced('"ranks": 2', '"ranks": 1'),
    "placement": replaced('"visible": "0,1"', '"visible": "0,0"'),
    "transport": replaced("cuda_ipc/cuda", "cuda_copy/cuda"),
    "low": scaled(OSU_ROW, 0.8),
    "impossible": scaled(OSU_ROW, 1.4),
    "answer": replaced("(MB/s)", "(GB/s)"),
    **CUT,
}
COPIES = r'"gb_per_s": ([\d.]+)'
NCCL_LOG = "\n" + "\n".join(
    line
    for line in (DATA / "h200x4/nccl_healthy_a.log").read_text().splitlines()
    if " via P2P" in line and line.startswith("vm:")
)
BY_SHM = {"transport": replaced("via P2P/CUMEM", "via SHM/direct/direct")}
PAIR = Kind(
    BenchLaunch(
        *("osu_bw", ("osu_bw", "-m", f"{SIZE}:{SIZE}", "D", "D"), 2, (SIZE,), (0, 1)),
        buffers="D D",
        transports=("cuda_ipc",),
    ),
    first("h200x4-prefix/osu_bw_osu-7.4.log"),
    H200,
    OSU,
)
LATENCY = {
    **FOUR,
    "transport": OSU["transport"],
    "low": scaled(OSU_ROW, 3),
    "impossible": scaled(OSU_ROW, 0.3),
    "answer": replaced("Latency(us)", "Latency(ms)"),
    **CUT,
}
COLLECTIVE = Kind(
    BenchLaunch(
        *("osu_bcast", ("osu_bcast",), 4, powers(1 << 22, 1 << 26), (0, 1, 2, 3)),
        buffers="D D",
        transports=("cuda_ipc",),
    ),
    first("h200x4-prefix/osu_bcast_osu-7.4.log"),
    H200,
    LATENCY,
)
XCCL = Kind(
    BenchLaunch(
        "all_reduce",
        ("all_reduce_perf", "-b", "1M", "-e", "1G", "-f", "4", "-g", "1", "-n", "20"),
        *(4, powers(1 << 20, GIB, 4), (0, 1, 2, 3)),
        transports=("P2P", "NVLS"),
        log="nccl",
        validated=True,
        end=True,
    ),
    first("h200x4-prefix/xccl_all_reduce_nccl-tests-2.19.6.log") + NCCL_LOG,
    replace(H200, harness="nccl-tests"),
    {
        **FOUR,
        "placement": replaced("[0000:00:07]", "[0000:00:06]"),
        "transport": BY_SHM["transport"],
        "data": replaced("Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED"),
        "low": rows_scaled(0.8),
        "impossible": rows_scaled(1.5),
        "answer": replaced("iters: 20", "iters: 2"),
        **CUT,
    },
)
FOREIGN = {"nonce": replaced(NONCE, "another")}
OTHER_HOST = replaced('"rank": 1, "host": "vm"', '"rank": 1, "host": "other"')
TORCH = Kind(
    BenchLaunch(
        *("torch_collectives", ("python3",), 2, (SIZE, 1 << 28, GIB), (0, 1)),
        operations=tuple((name, None, None) for name in COLLECTIVES),
        transports=("P2P", "NVLS"),
        log="nccl",
        validated=True,
        end=True,
        nonce=NONCE,
    ),
    of_job("h100x2-checks/framework_healthy.log.gz"),
    replace(H100, harness="pytorch"),
    {
        **FOREIGN,
        "ranks": OTHER_HOST,
        "placement": replaced("0000:00:07.0", "0000:00:06.0"),
        **BY_SHM,
        "data": replaced('"wrong": 0}', '"wrong": 5}'),
        "low": events_scaled(0.8),
        "impossible": events_scaled(1.4),
        "answer": replaced('"operation": "sendrecv"', '"operation": "send"'),
        **CUT,
    },
)
P5 = sites.load("p5")


def plugin(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
    """``fabric_ofi``'s own question, asked of the check as far as it reads it."""
    check = SimpleNamespace(
        shown=[shown], site=P5, current_partition=SimpleNamespace(name=P5.partitions[0].name)
    )
    for message in fabric_ofi.wrong(check):
        yield Verdict.FAILED, message


OFI = Kind(
    BenchLaunch("nccl_message_transfer", ("x",), 2, (), nodes=2, bands=False),
    placed("p5-synthetic/nccl_message_transfer_synthetic.log", 2, "n1", "n2"),
    Run(site=P5, partition=P5.partitions[0].name),
    {
        "ranks": replaced('"ranks": 2', '"ranks": 1'),
        "plugin": replaced("found 32 nics", "found 31 nics"),
        **CUT,
    },
    derive=lambda shown: [Reading("bw", 1, 1.0)],  # the tool measures nothing
    also=plugin,
)


def ucx(name: str, buffers: str, transports: tuple[str, ...]) -> Kind:
    rates = r"^Final: +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+) +(\d+) +(\d+)"

    memory = "cuda" if buffers == "D D" else "host"

    def faster(by: float) -> Break:
        overall = scaled(r"^Final: +\d+ +([\d.]+) +([\d.]+) +([\d.]+)", 1 / by)
        return lambda text: overall(scaled(rates, by)(text))

    return Kind(
        BenchLaunch(
            *("ucx_perftest", command("ucx_perftest", memory, 1 << 26, ()), 1, (1 << 26,)),
            buffers=buffers,
            transports=transports,
            placed=False,
            bands=buffers != "H H",
        ),
        (DATA / f"h200x4-synthetic/ucx_perftest_{name}_synthetic.log").read_text(),
        H200,
        {
            "transport": lambda text: re.sub(r"tag\(.*\)", "tag(tcp/lo)", text),
            "low": faster(0.1),
            "impossible": faster(1.4),
            "answer": replaced("bandwidth (MB/s)", "bandwidth (GB/s)"),
            **CUT,
        },
        derive=perftest,
    )


def rccl(
    ranks: int, table: str, log: str, settings: dict[str, str], said: tuple[str, str]
) -> Kind:
    """``said`` is what the log says of the mode, and what it would say without it."""
    first, last = (8, 16 * GIB) if ranks < 8 else (32, GIB)
    partition = "spx" if ranks < 8 else "cpx"
    known = Run(site=MI300X, partition=partition, harness="rccl-tests", environment={})
    text = placed(f"mi300x-synthetic/{table}", ranks, "mi300x")

    def also(launch: BenchLaunch, shown: LaunchOutput) -> Iterator[Problem]:
        yield from mode.not_in_use(shown.facts, settings, ranks)

    return Kind(
        BenchLaunch(
            *("all_reduce", ("all_reduce_perf",), ranks, powers(first, last)),
            transports=("P2P",),
            log="nccl",
            validated=True,
            end=True,
            environment=tuple(settings.items()),
        ),
        text + "\n" + (DATA / f"mi300x-synthetic/{log}").read_text(),
        known,
        {
            "ranks": replaced(f'"ranks": {ranks}', '"ranks": 1'),
            "data": replaced("Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED"),
            "low": rows_scaled(0.8, last // 2),
            "impossible": rows_scaled(201.37, *powers(1 << 20, last)),
            "answer": replaced("float     sum", "float     max"),
            "mode": replaced(*said),
            **CUT,
        },
        also=also,
    )


MSCCLPP = {
    "RCCL_MSCCL_FORCE_ENABLE": "1",
    "RCCL_MSCCLPP_ENABLE": "1",
    "RCCL_MSCCLPP_THRESHOLD": str(GIB),
}
CPX = rccl(
    *(64, "all_reduce_cpx64_synthetic.log", "rccl_log_cpx64_synthetic.log", {}),
    ("nranks 64 ", "nranks 8 "),
)
GPU_AWARE = Kind(
    BenchLaunch(
        "gpu_aware",
        ("gpu_aware", "--buffers=DD", "--sizes=4M,16M,256M", "--latency-sizes=8", "--check=64K"),
        *(2, ()),
        transports=("cuda_ipc",),
        mixed=True,
        end=True,
        nonce=NONCE,
    ),
    of_job("h100x2-checks/link_matrix_tested_healthy.log"),
    H100,
    {
        **FOREIGN,
        "ranks": OTHER_HOST,
        "placement": replaced("0000:00:07.0", "0000:00:06.0"),
        "transport": replaced("cuda_ipc/cuda", "cuda_copy/cuda"),
        "data": replaced('"messages": 128, "wrong": 0', '"messages": 128, "wrong": 9'),
        "metrics": lambda text: re.sub(r'(?m)^.*"event": "end".*$', "", text),
        "answer": replaced('"bytes": 8,', '"bytes": 9,'),
        "low": events_scaled(0.8, "16777216"),
        "impossible": events_scaled(1.4, "16777216"),
    },
)
LIBFABRIC = Kind(
    BenchLaunch(
        *("fi_pingpong", ("fi_pingpong", "-I", "200"), 1, (1 << 20,)),
        provider="tcp",
        placed=False,
        bands=False,
    ),
    (DATA / "libfabric/fi_pingpong_1.17.0_tcp.log").read_text() + "\nexit_status=0\n",
    H200,
    {
        "transport": replaced("prov_name: tcp", "prov_name: verbs"),
        "answer": replaced("2124.37", "4124.37"),
        **CUT,
    },
)
UCX_HOST = ucx("memory", "H H", ("sysv", "cma"))
UCX_GPU = ucx("gpu", "D D", ("cuda_ipc",))
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("pt2pt", "pt2pt_sdma"), PAIR),
    "pt2pt_host": replace(
        PAIR,
        launch=replace(
            PAIR.launch, command=("osu_bw", "H", "D"), sizes=powers(1 << 22, SIZE), buffers="H D"
        ),
        text=placed("h200x4/osu_bw_hd.log", 2, "vm")
        .replace('"visible": ""', '"visible": "0,1"')
        .replace("exit_status=124", "exit_status=0"),
        breaks={**OSU, "impossible": scaled(OSU_ROW, 60)},
    ),
    "pt2pt_pairs": replace(
        PAIR,
        launch=replace(
            PAIR.launch,
            bench="osu_mbw_mr",
            ranks=4,
            gpus=(0, 1, 2, 3),
            sizes=powers(1 << 22, 1 << 26),
        ),
        text=first("h200x4-prefix/osu_mbw_mr_osu-7.4.log").replace(
            '"visible": ""', '"visible": "0,1,2,3"'
        ),
        breaks={
            **OSU,
            **FOUR,
            "placement": replaced('"visible": "0,1,2,3"', '"visible": "0,0,2,3"'),
            "answer": replaced("window size: 64", "window size: 1"),
            "low": scaled(r"^\d+ +([\d.]+) +([\d.]+)$", 0.8),
            "impossible": scaled(r"^\d+ +([\d.]+) +([\d.]+)$", 1.7),
        },
    ),
    "pt2pt_nodes": Kind(
        BenchLaunch("osu_bw", ("osu_bw",), 2, (1 << 22,), (0,), nodes=2),
        placed("mi250x-cray-synthetic/osu_bw_nodes_synthetic.log", 2, "n1", "n2"),
        Run(site=CRAY, partition="gpu"),
        {**OSU, "ranks": replaced('"host": "n2"', '"host": "n1"')},
    ),
    "pt2pt_data": replace(
        PAIR,
        launch=replace(PAIR.launch, sizes=powers(1 << 16, 1 << 20), validated=True, bands=False),
        text=first("h200x4-prefix/osu_bw_validated_osu-7.4.log"),
        breaks={**OSU, "data": replaced("Pass", "Fail")},
    ),
    "pt2pt_cpu": replace(
        PAIR,
        launch=BenchLaunch(
            *("osu_bw", ("osu_bw", "-c", "-m", "65536:1048576"), 2, powers(1 << 16, 1 << 20)),
            buffers="H H",
            transports=SHARED_MEMORY,
            validated=True,
            bands=False,
        ),
        # The record of a pair of GPUs, as OSU and UCX print it without any.
        text=first("h200x4-prefix/osu_bw_validated_osu-7.4.log")
        .replace(" cuda_ipc/cuda", "")
        .replace(" cuda_copy/cuda", "")
        .replace("MPI-CUDA", "MPI")
        .replace(" D D\n", "\n"),
        breaks={
            **{name: OSU[name] for name in ("ranks", "metrics", "answer")},
            "transport": replaced("sysv/memory cma/memory", "tcp/lo"),
            "data": replaced("Pass", "Fail"),
        },
    ),
    **dict.fromkeys(("collective", "collective_node", "collective_nodes"), COLLECTIVE),
    **dict.fromkeys(("xccl", "xccl_nodes"), XCCL),
    "xccl_mscclpp": rccl(
        *(8, "all_reduce_cpx8_mscclpp_synthetic.log", "rccl_log_mscclpp_synthetic.log", MSCCLPP),
        (f"MSCCL++: Enabled! Msg size threshold={GIB}", "MSCCL++: Feature not enabled."),
    ),
    "xccl_few": rccl(
        *(4, "all_reduce_few4_synthetic.log", "rccl_log_few4_synthetic.log"),
        *({"NCCL_MIN_NCHANNELS": "32"}, ("32 coll channels", "24 coll channels")),
    ),
    "xccl_cpx": CPX,
    **dict.fromkeys(("framework", "framework_nodes"), TORCH),
    "memory": Kind(
        BenchLaunch(
            *("memory", ("memory", "2", "256M"), 1, (1 << 28,)),
            operations=operations(2),
            placed=False,
            validated=True,
            end=True,
            nonce=NONCE,
        ),
        of_job("h100x2-checks/memory_healthy.log"),
        H100,
        {
            **FOREIGN,
            "data": replaced('"wrong": 0}', '"wrong": 5}'),
            "low": scaled(COPIES, 0.8),
            "impossible": scaled(COPIES, 1.5),
            "answer": replaced('"from": 0, "to": 1', '"from": 0, "to": 2'),
            **CUT,
        },
    ),
    **dict.fromkeys(("fabric_ucx", "fabric_ucx_host", "fabric_ucx_nodes"), UCX_HOST),
    **dict.fromkeys(("fabric_ucx_gpu", "fabric_ucx_gpu_nodes"), UCX_GPU),
    **dict.fromkeys(("fabric_libfabric", "fabric_libfabric_nodes"), LIBFABRIC),
    "fabric_ofi": OFI,
    **dict.fromkeys(
        (
            *("gpu_aware", "gpu_aware_nodes", "gpu_aware_hipcc"),
            *("link_matrix", "link_matrix_nodes"),
        ),
        GPU_AWARE,
    ),
}
"""By the names of the checks."""
