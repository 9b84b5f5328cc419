# SPDX-License-Identifier: MIT
"""Documents of other programs, in the form that their documentation shows, and archives."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from busbar.engine import inputs
from busbar.errors import BusbarError
from busbar.explain import Source, explain
from busbar.verdict import Verdict

from .outputs import run

OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
DOCUMENTS: dict[str, Any] = {
    "gpu-out-of-memory": {
        "status": "success",
        "data": {
            "resultType": "streams",
            "result": [{"stream": {"host": "gpu-7"}, "values": [["1763685771000000000", OOM]]}],
        },
    },
    "out-of-memory": {
        "kind": "PodList",
        "items": [
            {
                "metadata": {"name": "worker-0"},
                "status": {
                    "containerStatuses": [
                        {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
                    ]
                },
            }
        ],
    },
    "launch-failed": {
        "kind": "EventList",
        "items": [
            {
                "involvedObject": {"kind": "Pod"},
                "type": "Warning",
                "reason": "FailedScheduling",
                "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                "lastTimestamp": "2026-11-21T00:42:50Z",
            }
        ],
    },
    "timeout": {"jobs": [{"job_id": 7, "state": {"current": ["TIMEOUT"]}, "nodes": "gpu-1"}]},
    "gpu-fault": {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "category": "Hardware",
                    "tests": [
                        {
                            "name": "Memory",
                            "results": [
                                {"gpu_id": "3", "status": "Fail", "warnings": [{"warning": "DBE"}]}
                            ],
                        }
                    ],
                }
            ]
        }
    },
}


def test_documents_of_other_programs() -> None:
    for cause, document in DOCUMENTS.items():
        assert [each.id for each in run(json.dumps(document)).causes] == [cause]
        assert not run(json.dumps({"x": document, **DOCUMENTS["timeout"]})).readings


def recorded(rank: int, *, number: int = 812, elements: int = 4) -> dict[str, Any]:
    """A dump of the flight recorder, version 2, whose last collective is not done."""
    entries = [
        {
            "record_id": each,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": each,
            "profiling_name": "nccl:all_reduce",
            "input_sizes": [[2, elements // 2] if elements % 2 == 0 else [elements]],
            "state": "completed" if each < number else "started",
        }
        for each in range(number - 3, number + 1)
    ]
    ranks = str([*range(8)])
    return {
        "version": "2.4",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "entries": entries,
    }


@pytest.mark.parametrize("write", [pickle.dumps, json.dumps])
def test_flight_recorder(write: Any, tmp_path: Path) -> None:
    """As https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html shows them."""
    for name, changed in (
        ("behind", {3: recorded(3, number=811)}),
        ("another size", {3: recorded(3, elements=6)}),
        ("silent", {3: None}),
        ("well", {}),
    ):
        dumps = {rank: recorded(rank) for rank in range(8)} | changed
        sources = [
            Source.from_text(f"nccl_trace_rank_{rank}", write(dump))
            for rank, dump in dumps.items()
            if dump
        ]
        (found,) = explain(sources)
        assert [each.rank for each in found.causes] == [3] * (name != "well"), name


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


def _tar(*members: tuple[str, int], data: bytes = b"") -> bytes:
    file = io.BytesIO()
    for name, nbytes in members:
        info = tarfile.TarInfo(name)
        info.size = nbytes
        info.type = tarfile.XHDTYPE if name == "pax" else tarfile.REGTYPE
        file.write(info.tobuf(tarfile.GNU_FORMAT) + data.ljust(-(-len(data) // 512) * 512, b"\0"))
    return file.getvalue() + bytes(1024)


def test_hostile_input_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inputs, "BOMB_BYTES", 16 << 20)
    deep: list[object] = []
    for _ in range(30):
        deep = [deep, deep]  # a text of gigabytes
    hostile = {
        "x_rank_1": pickle.dumps({"entries": [], "pg_config": _Runs()}),
        "cut_rank_2": pickle.dumps(recorded(2))[:-40],
        "room_rank_3": b"\x80\x02}r\xff\xff\xff\x7f.",
        "bytes_rank_4": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",
        "nested_rank_5": pickle.dumps({"entries": [], "pg_config": {"0": {"ranks": deep}}}),
        "100gb.tar.gz": gzip.compress(_tar(("big", 100 << 30))),
        "header.tar.gz": gzip.compress(_tar(("pax", 4 << 30))),
        "many.tar": _tar(*[(f"{each}", 0) for each in range(11_000)]),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(48 << 20))
    hostile["bomb.zip"] = file.getvalue()
    started = time.process_time()
    for name, data in hostile.items():
        Path(name).write_bytes(data)
        with pytest.raises(BusbarError):
            explain([Path(name)])
    assert time.process_time() - started < 5
    assert {each.name for each in tmp_path.iterdir()} == {*hostile}


def test_archives_and_directories(tmp_path: Path) -> None:
    """What is no text is left out, and names that lead elsewhere name nothing."""
    other = tmp_path / "elsewhere"
    (tmp_path / "job/node1").mkdir(parents=True)
    (tmp_path / "job/node1/out.log").write_text(OOM)
    (tmp_path / "job/core").write_bytes(b"\x7fELF" + bytes(range(256)) * 9)
    for packed in ("", "gz", "xz"):
        with tarfile.open(tmp_path / f"a.tar{packed}", mode=f"w:{packed}") as tar:  # type: ignore[call-overload]
            tar.add(tmp_path / "job", "job")
            tar.add(tmp_path / "job/node1/out.log", "../elsewhere")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "job/node1/out.log", "../elsewhere")
    for name in ("job", "a.tar", "a.targz", "a.tarxz", "a.zip"):
        (found,) = explain([tmp_path / name])
        assert [each.id for each in found.causes] == ["gpu-out-of-memory"], name
        assert found.causes[0].rank == 3
    assert not other.exists()


def test_archives_are_closed(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(OOM)
    with tarfile.open(tmp_path / "a.tar.gz", mode="w:gz") as tar:
        tar.add(tmp_path / "job.log", "job.log")
    before = len(os.listdir("/proc/self/fd"))
    explain([tmp_path / "a.tar.gz"])
    assert len(os.listdir("/proc/self/fd")) == before


RECORD = {"gpus": 4, "name": "AllReduce", "redop": "sum", "type": "float", "#wrong": "0"}


@pytest.mark.parametrize("form", ["lines", "list", "indented"])
def test_files_of_rccl_tests(form: str) -> None:
    """Records of https://github.com/ROCm/rccl-tests/pull/93, with or without those of MPI."""
    mpi = {} if form == "lines" else {"nodes": 2, "ranks": 4, "ranksPerNode": 2, "gpusPerRank": 1}
    records = [
        RECORD | mpi | {"size": size, "inPlace": way, "algBw": bw / 1.5, "busBw": bw, "time": time}
        for size, bw in ((1 << 28, 140.0), (1 << 30, 150.0))
        for way, time in enumerate([size / bw * 1.5e-3] * 2)
    ]
    lines = [json.dumps(each) for each in records]
    indent = 1 if form == "indented" else None
    text = "\n".join(lines) if form == "lines" else json.dumps(records, indent=indent)
    found = run(text)
    assert (found.operation, found.ranks) == ("all_reduce", 4)
    assert found.nodes == (2 if mpi else None)
    assert [each.value for each in found.readings if each.kind == "busbw"] == [140.0] * 2 + [
        150.0
    ] * 2
    assert (found.verdict, found.causes) == (Verdict.UNJUDGED, ())
    wrong = run(text.replace('"#wrong": "0"', '"#wrong": "7"'))
    assert [each.id for each in wrong.causes] == ["nccl-wrong-data"]


def test_a_fault_of_another_node_is_a_note() -> None:
    job = "gpu-001:77:90 [3] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n" + OOM
    xid = "Nov 21 00:42:50 {} kernel: NVRM: Xid (PCI:0000:86:00): 79, pid=1, GPU has fallen off\n"
    here, there = (run(job, xid.format(host)) for host in ("gpu-001", "gpu-009"))
    assert "gpu-fault" in {each.id for each in here.causes}
    assert [each.id for each in there.causes] == ["gpu-out-of-memory"]
    assert "other-node" in {each.id for each in there.notes}


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("dmesg", "Nov 22 00:42:50 gpu-001 kernel: NVRM: Xid (PCI:0000:86:00): 79, pid=1, X", ""),
        (
            "dmesg",
            "Nov 20 00:42:50 gpu-001 kernel: NVRM: Xid (PCI:0000:86:00): 79, pid=1, X",
            "time",
        ),
        ("sacct", "       4711  train  gpu  acct  8  TIMEOUT  0:0", "job"),
        ("sacct", "         12  train  gpu  acct  8  TIMEOUT  0:0", ""),
        ("scontrol", "JobId=4711 JobName=x JobState=TIMEOUT", "job"),
    ],
)
def test_sources_of_another_job_or_time_are_notes(name: str, text: str, note: str) -> None:
    job = f"2026-11-21 21:00:10 started\n2026-11-22 00:42:52 {OOM}"
    job = f"gpu-001:77:90 [3] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n{job}"
    sources = [Source.from_text("slurm-12.out", job), Source.from_text(name, f"{text}\n")]
    (found,) = explain(sources)
    notes = [each.id for each in found.notes if each.id.startswith("other-")]
    assert notes == ([f"other-{note}"] if note else [])
    causes = [each.id for each in found.causes]
    assert (causes == ["gpu-out-of-memory"]) == bool(note) or "timeout" not in text


def test_time_and_host_are_those_of_the_collector() -> None:
    text = "Out of memory: Killed process 1234 (python)"
    record = {
        "__REALTIME_TIMESTAMP": "1763685770000000",
        "_HOSTNAME": "gpu-004",
        "SYSLOG_IDENTIFIER": "kernel",
        "MESSAGE": text,
    }
    stream = {"stream": {"node_name": "gpu-004"}, "values": [["1763685770000000000", text]]}
    event = {
        "involvedObject": {"kind": "Node", "name": "gpu-004"},
        "type": "Warning",
        "reason": "SystemOOM",
        "message": text,
        "lastTimestamp": "2025-11-21T00:42:50Z",
    }
    for document in (record, {"data": {"result": [stream]}}, {"items": [event]}):
        (cause,) = run(json.dumps(document) + "\n").causes
        place = cause.id, cause.host, cause.time
        assert place == ("out-of-memory", "gpu-004", "2025-11-21T00:42:50"), document
