# SPDX-License-Identifier: MIT
"""Input as jobs leave it: cut, coloured, labelled, interleaved, binary, huge."""

from __future__ import annotations

import gzip
import io
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.explain import Explanation, Source, explain
from tests.cases import cases

from .outputs import BANNER, ids, nccl_table, run, steps

DATA = Path(__file__).parents[1] / "data"
CUT_ROWS = DATA / "h200x4/nccl_p2p_disabled.log"  # log lines cut each row of it in three
FAULTY = (
    "h200x4/nccl_p2p_disabled.log",
    "h200x4/osu_bw_ob1.log",
    "h20-roce/all_reduce_2x8_before.log",
)


def outcome(data: bytes, name: str = "job.out") -> tuple[str, list[str], list[tuple[int, float]]]:
    (found,) = explain([Source.from_text(name, data)])
    values = [(r.nbytes, r.value) for r in found.readings]
    return str(found.verdict), sorted(c.id for c in found.causes), values


def _colour(data: bytes) -> bytes:
    return b"\n".join(b"\x1b[1;31m" + line + b"\x1b[0m" for line in data.split(b"\n"))


def _label(data: bytes) -> bytes:
    return b"\n".join(b"0: " + line for line in data.split(b"\n"))


def _tag(data: bytes) -> bytes:
    return b"\n".join(b"[1,0]<stdout>: " + line for line in data.split(b"\n"))


def _nul(data: bytes) -> bytes:
    return b"\0" * 100 + data.replace(b"NCCL", b"NC\0CL").replace(b"pml", b"p\0ml")


@cases("file", FAULTY)
@cases(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        _colour,
        _label,
        _tag,
        _nul,
        gzip.compress,
        lambda data: data.rstrip(b"\n").rsplit(b"\n", 1)[0] + b"\n",
        lambda data: data.rstrip(b"\n"),
        lambda data: b"\xff\xfe\x80 garbage\n" + data + b"\n\xc3\x28\n",
    ],
)
def test_the_same_whatever_wraps_it(file: str, change: Callable[[bytes], bytes]) -> None:
    data = (DATA / file).read_bytes()
    assert outcome(change(data)) == outcome(data)


def test_rows_cut_by_log_lines_are_whole_again() -> None:
    _, _, values = outcome(CUT_ROWS.read_bytes())
    assert len(values) == 24
    assert values[-4] == (1 << 30, 27.52)


def test_interleaved_ranks() -> None:
    """Other ranks' lines between, before and after the pieces of rank 0's rows."""
    noise = random.Random(1)  # noqa: S311 - a repeatable shuffle, no secret
    lines = []
    for line in _label(CUT_ROWS.read_bytes()).split(b"\n"):
        lines.append(line)
        if noise.random() < 0.3:
            rank = noise.randrange(1, 4)
            lines.append(b"%d: vm:99%d:99 [%d] NCCL INFO Connected to proxy" % (rank, rank, rank))
    assert outcome(b"\n".join(lines)) == outcome(CUT_ROWS.read_bytes())


def half(nbytes: int, busbw: float) -> str:
    """One half of a row of four ranks."""
    return f" {nbytes / busbw * 1.5e-3:.2f} {busbw / 1.5:.2f} {busbw:.2f} 0"


def test_files_of_each_rank_are_one_run() -> None:
    data = (DATA / "h200x4/nccl_p2p_disabled.log").read_text()
    is_log = [" NCCL INFO " in line for line in data.splitlines()]
    table = [line for line, log in zip(data.splitlines(), is_log, strict=True) if not log]
    ranks = {
        pid: "\n".join(line for line in data.splitlines() if line.startswith(f"vm:{pid}:"))
        for pid in {line.split(":")[1] for line in data.splitlines() if line.startswith("vm:")}
    }
    head = "\n".join(table[: next(i for i, x in enumerate(table) if "Rank  3" in x) + 1])
    (rows,) = explain([Source.from_text("x", data)])
    text = (
        head
        + "\n"
        + "\n".join(
            f"{r.nbytes} {r.nbytes // 4} float sum -1" + 2 * half(r.nbytes, r.value)
            for r in rows.readings
            if r.kind == "busbw" and r.in_place is False
        )
        + "\n# Out of bounds values : 0 OK\n"
    )
    sources = [Source.from_text("stdout", text)]
    sources += [Source.from_text(f"nccl.{pid}", log) for pid, log in ranks.items()]
    (found,) = explain(sources)
    assert [cause.id for cause in found.causes] == ["nccl-p2p-off"]
    assert found.files == tuple(source.name for source in sources)


def test_two_runs_in_one_output() -> None:
    healthy = (DATA / "h200x4/nccl_no_debug.log").read_bytes()
    broken = (DATA / "h200x4/osu_bw_ob1.log").read_bytes()
    found = explain([Source.from_text("job.out", healthy + broken)])
    assert [(e.tool, str(e.verdict)) for e in found] == [
        ("nccl-tests", "pass"),
        ("osu_bw", "failed"),
    ]


def test_a_table_without_its_header_is_a_run_of_its_own() -> None:
    text = nccl_table({1 << 28: 337.0, 1 << 30: 356.0})
    rows = "".join(x for x in text.splitlines(True) if x.lstrip()[0].isdigit() or "# O" in x)
    found = explain([Source.from_text("job.out", text + rows.replace("337.00", "336.00"))])
    assert [len(each.readings) for each in found] == [8, 8]
    assert [each.causes for each in found] == [(), ()]


def test_runs_in_two_files_stay_apart() -> None:
    files = [DATA / "h200x4/nccl_no_debug.log", DATA / "h200x4/nccl_p2p_disabled.log"]
    assert [str(e.verdict) for e in explain(files)] == ["pass", "degraded"]


def test_missing_and_empty_files_are_bad_input(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    for text in ("", "checks for MPI_ERR_TRUNCATE passed\n", "curl: failed: timed out\n"):
        empty.write_text(text)
        with pytest.raises(BusbarError, match="no known tool output" if text else "is empty"):
            explain([empty])
    with pytest.raises(BusbarError, match=r"none\.log.*cannot be read"):
        explain([tmp_path / "none.log"])
    with pytest.raises(BusbarError):
        explain([tmp_path])


def test_broken_json_is_read_up_to_its_last_result() -> None:
    text = (DATA / "h200x4/nccl_all_reduce_single_process.json").read_text()
    (whole,) = explain([Source.from_text("run.json", text)])
    (cut,) = explain([Source.from_text("run.json", text[: len(text) * 2 // 3])])
    assert [c.id for c in cut.causes] == ["truncated-output"]
    assert 0 < len(cut.readings) < len(whole.readings)
    assert cut.readings == whole.readings[: len(cut.readings)]


# ---- fuzzing: nothing but BusbarError, no hang, no unbounded memory
SEEDS = tuple(
    (DATA / file).read_bytes()[-6_000:]
    for file in (
        "h200x4/nccl_p2p_shm_disabled.log",
        "h200x4/osu_allreduce.log",
        "h200x4/nccl_all_reduce_single_process.json",
        "h20-roce/all_reduce_2x8_before.log",
        "p4d-efa/nccl_message_transfer.log",
        "h200x4/osu_bw_ucx122.log",
    )
)


def survives(data: bytes) -> list[Explanation]:
    try:
        found = explain([Source.from_text("fuzz", data)])
    except BusbarError:
        return []
    for explanation in found:
        to_json(explanation)
    return found


@given(st.binary(max_size=4096))
def test_fuzz_any_bytes(data: bytes) -> None:
    survives(data)


@given(
    st.sampled_from(SEEDS), st.integers(0, 20_000), st.integers(0, 20_000), st.binary(max_size=40)
)
def test_fuzz_spliced(seed: bytes, start: int, end: int, insert: bytes) -> None:
    survives(seed[:start] + insert + seed[end:])


@given(st.sampled_from(SEEDS), st.randoms(use_true_random=False), st.integers(0, 60))
def test_fuzz_shuffled_and_doubled(seed: bytes, order: random.Random, doubled: int) -> None:
    lines = seed.split(b"\n")
    lines += lines[:doubled]
    order.shuffle(lines)
    survives(b"\n".join(lines))


@given(
    st.sampled_from(["reading", "start", "rank", "check", "copy", "error", "end", "other"]),
    st.dictionaries(
        st.sampled_from(
            [
                "rank",
                "ranks",
                "asked_ranks",
                "from",
                "to",
                "bytes",
                "gb_per_s",
                "us",
                "wrong",
                "metric",
                "cpus",
                "host",
                "device",
                "buffers",
                "text",
                "program",
                "backend",
                "operation",
            ]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=8)
        | st.lists(st.integers(), max_size=2),
    ),
)
def test_fuzz_events(kind: str, values: dict[str, object]) -> None:
    start = (
        '{"event": "start", "program": "gpu_aware", "version": "1.0", "backend": "cuda",'
        ' "ranks": 2, "asked_ranks": 2}\n'
    )
    survives(
        (start + json.dumps({"metric": "bandwidth", **values, "event": kind}) + "\n").encode()
    )


@cases("digits", [19, 400, 5000, 60_000])
@cases(
    "line",
    [
        "{0} {0}.5",
        "{0} {0} float sum -1 1 1 1 0 1 1 1 0",
        "#  Rank {0} Group  0 Pid {0} on n1 device {0} [0x10] NVIDIA H200",
        "n1:{0}:{0} [{0}] NCCL INFO Channel {0}/{0} : {0} {0}",
        "n1:1:1 [0] NCCL INFO Channel 00/0 : {0}[0] -> {0}[0] [receive] via NET/IB/{0}",
        "n1:1:1 [0] NCCL INFO NCCL_BUFFSIZE set by environment to {0}.",
        "n1:1:1 [0] NCCL INFO {0} coll channels, {0} p2p channels, {0} p2p channels per peer",
        "n1:1:1 [0] NCCL INFO comm 0x1 rank {0} nRanks {0} nNodes {0} localRanks {0}",
        "n1:1:1 [0] NCCL INFO Affinity for GPU 0 is x. (GPU affinity = {0} ; CPU affinity ="
        " 0-{0})",
        "[1.0] [n1:{0}:0] parser.c:1 UCX  INFO  UCX_* env variable: UCX_RNDV_THRESH={0}",
        '{{"event": "reading", "metric": "bandwidth", "bytes": {0}, "gb_per_s": {0}}}',
        "exit_status={0}",
    ],
)
def test_numbers_of_any_length(line: str, digits: int) -> None:
    head = "# OSU MPI-CUDA Bandwidth Test v7.4\n" if line.startswith("{0} {0}.5") else ""
    survives((head + line.format("9" * digits) + "\n").encode())


class _Endless(io.RawIOBase):
    """``size`` bytes without a newline, made as they are read."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        count = min(self._left, size if size >= 0 else self._left)
        self._left -= count
        return b"\x07" * count

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset


def test_a_hundred_megabytes_without_a_newline_stay_out_of_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BusbarError):
            explain([Source("endless", lambda: _Endless(100_000_000))])  # type: ignore[arg-type, return-value]
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_codes_are_read_in_a_log_that_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that differ in addresses and process ids only are left out, codes are not."""
    for name in ("_FREE_LINES", "_MOST_ALIKE", "_MIN_WORN"):
        monkeypatch.setattr(f"busbar.engine.runs.{name}", 8)
    line = "n{0}:{1}:{1} [0] net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<{1}>"
    line += " with status={2} opcode=0\n"
    text = "".join(line.format(i % 8, 10_000 + i, 5) for i in range(400))
    assert "fabric-timeout" not in ids(run(text))
    assert "fabric-timeout" in ids(run(text + line.format(7, 77_777, 12)))
    table = nccl_table({1 << 28: 340.0, 1 << 30: 355.0})
    assert [len(each.readings) for each in steps(text + table)] == [0, 8]
    osu = BANNER + "".join(f"{1 << i} {1000.5 + i}\n" for i in range(20))
    assert len(run(text + osu).readings) == 20
