# SPDX-License-Identifier: MIT
"""The verdict on every recorded run on 4 x H200, by what was done to it."""

from __future__ import annotations

import re
from dataclasses import replace

from busbar import site as sites
from busbar.engine.collect import show
from busbar.engine.judge import judge
from busbar.engine.launch import BenchLaunch, powers
from busbar.engine.run import Run
from busbar.verdict import Verdict, combined
from tests.cases import cases

SITE = sites.load("h200x4")
PAIR = BenchLaunch(
    *("osu_bw", ("osu_bw",), 2, powers(1 << 22, 1 << 28, 2), (0, 1)),
    transports=("cuda_ipc",),
    placed=False,
)
ALL_REDUCE = BenchLaunch(
    *("all_reduce", ("all_reduce_perf",), 4, powers(1 << 20, 1 << 30, 4), (0, 1, 2, 3)),
    transports=("P2P", "NVLS"),
    log="nccl",
    validated=True,
    placed=False,
    end=True,
)
PASS, DEGRADED, FAILED = Verdict.PASS, Verdict.DEGRADED, Verdict.FAILED
OSU = {
    **dict.fromkeys(("healthy_a", "get_zcopy", "put_zcopy", "ipc_cache_off", "ucx122"), PASS),
    "same_gpu": Verdict.IMPOSSIBLE,
    # They died, or their time limit ended them.
    **dict.fromkeys(("default_pml", "ob1", "no_cuda_ipc", "tcp_only"), FAILED),
    **dict.fromkeys(("ucx_without_cuda", "hd", "host"), FAILED),
}
NCCL = {
    **dict.fromkeys(("healthy_a", "algo_ring", "cumem_off"), PASS),
    **dict.fromkeys(("buffsize_64k", "channels_1", "launch_blocking", "one_core"), DEGRADED),
    **dict.fromkeys(("p2p_disabled", "p2p_shm_disabled", "proto_ll", "proto_ll128"), DEGRADED),
    "duplicate_gpu": FAILED,
    # Fast, but without a log nobody knows by which way.
    "no_debug": FAILED,
}


RUN = Run(site=SITE, harness="nccl-tests", lane="ucx-1.14", environment={})


def judged(path, launch):
    shown = show(path.name, path.read_text(errors="backslashreplace").splitlines())
    return combined(result.verdict for result in judge("check", RUN, launch, shown).results)


@cases("name", OSU)
def test_osu_bw(data, name):
    path = data / "h200x4" / f"osu_bw_{name}.log"
    rows = re.findall(r"^(\d+) +[\d.]+$", path.read_text(errors="replace"), re.MULTILINE)
    launch = replace(PAIR, sizes=tuple(map(int, rows)) or PAIR.sizes)
    assert judged(path, launch) is OSU[name]


@cases("name", NCCL)
def test_all_reduce(data, name):
    assert judged(data / "h200x4" / f"nccl_{name}.log", ALL_REDUCE) is NCCL[name]


def test_no_record_is_left_out(data):
    files = {path.stem for path in (data / "h200x4").glob("osu_bw_*.log")}
    assert files == {f"osu_bw_{name}" for name in OSU}
    files = {path.stem for path in (data / "h200x4").glob("nccl_*.log")}
    assert files == {f"nccl_{name}" for name in NCCL}
