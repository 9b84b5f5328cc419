# SPDX-License-Identifier: MIT
"""Ports, GPUs of AMD, the kernel log and the flight recorder in `busbar job`, from recorded trees.

The forms are those of mlx5, efa, cxi and amdgpu; no such device was at hand.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busbar.engine.reading import Cause
from busbar.job.judge import judge
from busbar.job.node import amdgpu, network
from busbar.job.node.process import dumps
from busbar.job.sample import GpuState
from tests.cases import cases
from tests.explain.test_documents import recorded as dumped

from .test_job import RANKS, node, observed, process, running

IB = "sys/class/infiniband"
LINK = 50.0
RATE = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
SLOT = {"current_link_width": "16", "current_link_speed": "32.0 GT/s PCIe"}


def written(root: Path, place: str, files: dict[str, str]) -> None:
    """Write files below a place of a tree."""
    for name, text in files.items():
        path = root / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_ports_of_each_fabric(tmp_path: Path) -> None:
    data = {"counters/port_rcv_data": "1000", "counters/port_xmit_data": "2000"}
    written(tmp_path, f"{IB}/mlx5_0/ports/1", RATE | data | {"counters/symbol_error": "7"})
    written(tmp_path, f"{IB}/mlx5_0/device", SLOT)
    written(tmp_path, f"{IB}/mlx5_1/ports/1", RATE | {"counters/port_rcv_data": "none"})
    efa = {"state": "4: ACTIVE", "rate": "100 Gb/sec (4X EDR)"}
    words = {"hw_counters/rx_bytes": "30", "hw_counters/tx_bytes": "40"}
    written(tmp_path, f"{IB}/rdmap16s27/ports/1", efa | words)
    up = {"operstate": "up", "carrier": "1", "speed": "200000"}
    bus = tmp_path / "sys/devices/hsn0"
    written(tmp_path, "sys/class/net/hsn0", up)
    cxi = {f"hni_sts_{way}_ok_octets": f"{n}@17.5" for way, n in (("rx", 50), ("tx", 60))}
    written(tmp_path, "sys/class/cxi/cxi0/device/telemetry", cxi)
    bytes_ = {"statistics/rx_bytes": "70", "statistics/tx_bytes": "80"}
    written(bus, "net/eth0", bytes_)
    written(tmp_path, "sys/class/net/eth0", up | bytes_)
    (tmp_path / "sys/class/net/eth0/device").symlink_to(bus)
    written(tmp_path, "sys/class/net/veth1", up | bytes_)
    found, limits = network.ports(tmp_path)
    assert found == {
        "rdma": {
            "mlx5_0 in": 4000,
            "mlx5_0 out": 8000,
            "rdmap16s27 in": 30,
            "rdmap16s27 out": 40,
            "hsn0 in": 50,
            "hsn0 out": 60,
        },
        "ethernet": {"eth0 in": 70, "eth0 out": 80},
        "errors": {"mlx5_0 symbol_error": 7},
    }
    assert limits["mlx5_0"] == (50.0, pytest.approx(63.0, abs=0.1))
    assert limits["hsn0"] == (25.0, 0.0)


def rails(rates: list[float], slots: dict[int, float] | None = None, **errors: float) -> Any:
    """The ports of a node with these GB/s, out of 50; and slots that carry less."""
    ports = {
        f"mlx5_{n} {way}": rate * 1e9 for n, rate in enumerate(rates) for way in ("in", "out")
    }
    limits = {f"mlx5_{n}": (LINK, (slots or {}).get(n, 63.0)) for n in range(len(rates))}
    return {"ports": {"rdma": ports, "errors": errors}, "limits": limits}


def ranks(first: int = 0, **fields: Any) -> list[Any]:
    """Four ranks with a GPU each."""
    return [process(n, gpu=True, world=2 * RANKS, **fields) for n in range(first, first + RANKS)]


def judged_nodes(one: Any, other: Any) -> Any:
    """The answer for two nodes of four ranks."""
    two = replace(node(*ranks(RANKS), **other), node="n2")
    return judge("1", [node(*ranks(), **one), two])


EVEN = rails([12.0] * 4)


@cases(
    ("one", "other", "cause", "text"),
    [
        (rails([12, 12, 0, 0]), rails([12, 12, 0, 0]), "nic-count-short", "mlx5_2, mlx5_3"),
        (rails([12, 12, 12, 0]), EVEN, "nic-count-short", "rails mlx5_3 of n1 are idle"),
        (rails([12] * 4, {1: 15.0}), EVEN, "network-path-slow", "carry only 15 of 50 GB/s"),
        (rails([12] * 4, **{"mlx5_1 symbol_error": 9}), EVEN, "link-errors", "45 symbol_error"),
        (rails([0] * 4, **{"mlx5_1 link_downed": 0.2}), EVEN, "link-down", "1 link_downed"),
        (rails([0] * 4), rails([0] * 4), "", ""),
        (EVEN, EVEN, "", "12 of 50 GB/s, 24%"),
        (rails([46] * 4), rails([46] * 4), "", "92%: the network is the limit"),
        # Eight ports and four GPUs: a job need not use all. One error may be by chance.
        (rails([12] * 4 + [0] * 4), rails([12] * 4 + [0] * 4), "", "24%"),
        (rails([12] * 4, **{"mlx5_1 symbol_error": 0.2}), EVEN, "", "24%"),
        # A port of another program counts errors, and a slot that is no bound.
        (rails([12, 12, 12, 0], **{"mlx5_3 symbol_error": 9}), rails([12] * 3 + [0]), "", ""),
        (rails([2] * 4, {1: 15.0}), EVEN, "", "24%"),
    ],
)
def test_rates_are_judged_by_limits(one: Any, other: Any, cause: str, text: str) -> None:
    if not cause and "mlx5_3 symbol_error" in one["ports"]["errors"]:
        one["limits"]["mlx5_3"] = other["limits"]["mlx5_3"] = (12.5, 0.0)  # of storage
    answer = judged_nodes(one, other)
    assert [each.id for each in answer.causes] == [cause] * bool(cause)
    assert text in answer.headline


AMD = "sys/bus/pci/devices/0000:c1:00.0"


def amd(root: Path, *, percent: int, mhz: int, status: int) -> None:
    """A GPU of AMD as its driver shows it."""
    ids = {"vendor": "0x1002", "device": "0x7408", "class": "0x038000"}
    clocks = f"0: 500Mhz\n1: {mhz}Mhz *\n2: 1700Mhz"
    written(root, AMD, ids | {"gpu_busy_percent": str(percent), "pp_dpm_sclk": clocks})
    data = bytearray(120)
    data[2:4], data[112:] = (1, 3), status.to_bytes(8, "little")
    (root / AMD / "gpu_metrics").write_bytes(data)
    (root / AMD / "driver").symlink_to(root)
    topology = "sys/class/kfd/kfd/topology/nodes/1"
    place = {"properties": f"simd_count 440\nlocation_id {0xC100}\ndomain 0", "gpu_id": "4711"}
    written(root, topology, place)
    written(root, "sys/class/kfd/kfd/proc/77", {"vram_4711": str(512 << 20)})


@cases(("status", "reasons"), [(0, 0), (1 << 33, 0x40), (1 << 2, 0x04), (1 << 57, 0)])
def test_gpus_of_amd(status: int, reasons: int, tmp_path: Path) -> None:
    amd(tmp_path, percent=97, mhz=900, status=status)
    times = [time.monotonic()] * 2
    looks = amdgpu.gpu_looks(times, tmp_path)
    states = [GpuState(**row) for _, rows in looks for row in rows]
    want = {"percent": 97, "mhz": 900, "reasons": reasons, "processes": [(77, 512)]}
    assert [{name: getattr(each, name) for name in want} for each in states] == [want] * 2
    assert amdgpu.gpu_looks(times, tmp_path / "none") == []


HOT = [1000, 0, 500, 0, 200, 0]
"""Of 1,000 cycles: at the power limit in 500, with a hot regulator in 200."""


@cases(
    ("form", "at", "links", "reasons"),
    [(4, 0, 104, 0), (5, 0, 176, 0), (6, 32, 128, 0x44), (7, 40, 136, 0x44), (8, 40, 136, 0x44)],
)
def test_xgmi_and_residencies(
    form: int, at: int, links: int, reasons: int, tmp_path: Path
) -> None:
    """Two looks at an MI300, as the header of the driver declares its table; one link counts.

    No such GPU was at hand. 3 MiB were read and 5 MiB written; the cycles begin again at 0.
    """
    amd(tmp_path, percent=97, mhz=900, status=0)
    file = tmp_path / AMD / "gpu_metrics"
    begin, absent, texts = [2**32 - 10] * 6, [2**64 - 1] * 7, []
    for cycles, read, sent in ((begin, 1024, 0), ([(n - 10) % 2**32 for n in HOT], 4096, 5120)):
        data = bytearray(400)
        data[2:4] = 1, form
        if at:
            data[at : at + 24] = struct.pack("<6I", *cycles)
        data[links : links + 128] = struct.pack("<16Q", read, *absent, sent, *absent)
        texts.append(bytes(data))
    file.write_bytes(texts[0])
    late = threading.Timer(0.5, file.write_bytes, [texts[1]])
    late.start()
    now = time.monotonic()
    looks = amdgpu.gpu_looks([now, now + 1.0], tmp_path)
    late.join()
    first, last = (GpuState(**rows[0]) for _, rows in looks)
    assert (first.moved, last.moved) == (1 << 20, 5 << 20)
    assert first.reasons == last.reasons == reasons
    file.write_bytes(texts[0][: links + 100])
    assert amdgpu.gpu_looks([now], tmp_path)[0][1][0]["moved"] is None


def gpus(*rows: dict[str, Any], looks: int = 3) -> dict[str, Any]:
    """Looks at GPUs; each is used by the process of its rank, unless the row says otherwise."""
    state = {"percent": 95, "mhz": 1700, "reasons": 0, "pcie": 0.0, "links": 0, "moved": None}
    made = tuple(
        GpuState(**state | {"processes": ((100 + n, 900),), "bus": f"00000000:C{n}:00.0"} | row)
        for n, row in enumerate(rows)
    )
    return {"gpus": tuple((float(n), made) for n in range(looks))}


XID = ("xid", "0000:c1:00", 79, 9.0, "GPU has fallen off the bus")
PAGE = ("amdgpu", "0000:c1:00.0", 0, 9.0, "[gfxhub] page fault (src_id:0 ring:24)")


@cases(
    ("fields", "cause", "ranks"),
    [
        (gpus({}, {"reasons": 0x40}), "gpu-throttled", [1]),
        (gpus({}, {"mhz": 900}), "gpu-throttled", [1]),
        (gpus({}, {"processes": ((101, 9), (77, 512))}), "gpu-busy", [1]),
        (gpus({}, {"percent": 2}), "rank-late", [1]),
        (gpus({}, {}) | {"kernel": (XID,)}, "gpu-fault", [1]),
        (gpus({}, {}) | {"kernel": (PAGE,)}, "gpu-program-fault", [1]),
        (gpus({}, {}) | {"kernel": ((*XID[:2], 31, *XID[3:]),)}, "gpu-program-fault", [1]),
        # Long before the job, a notice, and another GPU.
        (gpus({}, {}) | {"kernel": ((*XID[:3], 900.0, XID[4]),)}, "", []),
        (gpus({}, {}) | {"kernel": ((*XID[:2], 63, *XID[3:]),)}, "", []),
        (gpus({}, {}) | {"kernel": (("xid", "0000:c7:00", *XID[2:]),)}, "", []),
    ],
)
def test_a_gpu_that_differs(fields: dict[str, Any], cause: str, ranks: list[int]) -> None:
    rows = [process(n, gpu=True, world=2) for n in range(2)]
    answer = judge("1", [node(*rows, **fields)])
    assert [(each.id, each.details["ranks"]) for each in answer.causes] == (
        [(cause, ranks)] if cause else []
    )


# ---- the flight recorder
def recorded_by(*calls: tuple[int, str, int, str], moves: bool = False) -> list[Cause]:
    """The causes if each rank has recorded this number, operation, elements and state."""
    rows = []
    for rank, (number, *rest) in enumerate(calls):
        looks = [(("default_pg", number + at * moves, *rest),) for at in (0, 1)]
        rows.append(process(rank, world=len(calls), recorded=tuple(looks)))
    return list(judge("1", [node(*rows)]).causes)


WAITS = (812, "ALL_REDUCE", 4, "started")


@cases(
    ("calls", "cause", "text"),
    [
        (
            [WAITS] * 3 + [(811, *WAITS[1:3], "completed")],
            "rank-late",
            "number 812 and keeps ranks",
        ),
        ([WAITS] * 3 + [(812, "BROADCAST", 4, "started")], "collective-mismatch", "BROADCAST"),
        ([WAITS] * 3 + [(812, "ALL_REDUCE", 6, "started")], "collective-mismatch", "6 elements"),
        ([(812, "ALLTOALL", n, "started") for n in range(4)], "", ""),
        ([WAITS] * 4, "", ""),
    ],
)
def test_ranks_at_another_collective(calls: Any, cause: str, text: str) -> None:
    found = recorded_by(*calls)
    assert [(each.id, each.details["ranks"]) for each in found] == [(cause, [3])] * bool(cause)
    assert not found or text in found[0].summary
    assert not recorded_by(*calls, moves=True)


DUMPS = """
import os, sys, time
stem, dump = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"], os.environ["TORCH_FR_DUMP_TEMP_FILE"]
rank = os.environ["RANK"]
os.mkfifo(stem + rank + ".pipe")
pipe = os.open(stem + rank + ".pipe", os.O_RDONLY | os.O_NONBLOCK)
content = open(dump + "source" + rank, "rb").read()
while True:
    time.sleep(0.05)
    if os.read(pipe, 9):
        open(dump + rank, "wb").write(content)
"""


def test_a_dump_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ranks that do what PyTorch does when something is written to their pipe."""
    for rank in range(3):
        data = pickle.dumps(dumped(rank, number=811 if rank == 2 else 812))
        (tmp_path / f"source{rank}").write_bytes(data)
    monkeypatch.setenv("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", f"{tmp_path}/pipe")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", f"{tmp_path}/")
    with running(DUMPS, DUMPS, DUMPS) as pids:
        time.sleep(0.5)
        without, _ = observed(pids, capsys)
        assert not (tmp_path / "0").exists()
        found, _ = observed(pids, capsys, "--flight-recorder")
    assert without["causes"] == []
    assert [(c["id"], c["details"]["ranks"]) for c in found["causes"]] == [("rank-late", [2])]


@pytest.mark.skipif(os.getuid() != 0, reason="not root")
def test_root_writes_to_no_pipe_of_another_user_than_the_rank(tmp_path: Path) -> None:
    """Although root owns `/proc/PID` of a setuid program."""
    tmp_path.chmod(0o755)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    code = "import os, time; os.setresuid(65534, 0, 0); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-Ic", code], stdout=subprocess.PIPE) as rank:
        assert rank.stdout
        assert rank.stdout.readline()
        assert os.stat(f"/proc/{rank.pid}").st_uid == 0
        for _ in range(2):
            dumps([(rank.pid, str(pipe), str(tmp_path / "dump"))], 0.2)
            asked = bool(select.select([reader], [], [], 0)[0]) and os.read(reader, 9)
            assert bool(asked) == (pipe.stat().st_uid != 0)
            os.chown(pipe, 65534, 65534)
        rank.kill()
    os.close(reader)


@cases("kind", ["file", "link", "pickle", "never", "none"])
def test_hostile_pipes_and_dumps(kind: str, tmp_path: Path) -> None:
    """A pipe that is none, leads elsewhere, or whose rank answers with code or not at all."""
    pipe, path = tmp_path / "pipe", tmp_path / "dump"
    victim = tmp_path / "victim"
    victim.write_text("")
    if kind in ("pickle", "never"):
        os.mkfifo(pipe)
    elif kind == "link":
        pipe.symlink_to(victim)
    elif kind == "file":
        pipe.write_text("")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK) if pipe.exists() else -1
    answer = threading.Timer(0.3, lambda: path.write_bytes(pickle.dumps(sys.exit)))
    if kind == "pickle":
        answer.start()
    begin = time.monotonic()
    assert dumps([(os.getpid(), str(pipe), str(path))], 1.0) == {}
    assert time.monotonic() - begin < 3
    assert victim.read_text() == ""
    if reader >= 0:
        os.close(reader)
