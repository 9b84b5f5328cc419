# SPDX-License-Identifier: MIT
"""Inputs as users give them: pipes, directories, compressed, cut off, of another kind."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from busbar.cli import main
from busbar.engine import inputs
from busbar.errors import BusbarError
from busbar.explain import Source, explain

from .outputs import ids, nccl_table, run

DATA = Path(__file__).parents[1] / "data"
FAULTY = DATA / "h200x4/nccl_p2p_disabled.log"
PACKERS = (gzip.compress, partial(bz2.compress, compresslevel=1), lzma.compress)


def causes(*files: Path | Source) -> list[str]:
    (run,) = explain(files)
    assert len(run.readings) == 24
    return [cause.id for cause in run.causes]


@pytest.mark.parametrize("pack", PACKERS)
def test_compressed(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(pack(FAULTY.read_bytes()))
    assert causes(tmp_path / "log") == ["nccl-p2p-off"]


@pytest.mark.parametrize("pack", PACKERS)
def test_cut_archive_is_read_as_far_as_it_goes(pack: Callable[[bytes], bytes]) -> None:
    noise = b"".join(b"%x\n" % (i * i * 2654435761 % 2**61) for i in range(20_000))
    packed = pack(FAULTY.read_bytes() + noise)
    for share in (0.5, 0.999):
        (run,) = explain([Source.from_text("log.gz", packed[: int(len(packed) * share)])])
        assert [cause.id for cause in run.causes] == ["nccl-p2p-off"]
        assert [note.summary for note in run.notes if note.id == "input-damaged"]
    (whole,) = explain([Source.from_text("log.gz", packed)])
    assert "input-damaged" not in {note.id for note in whole.notes}


def test_archive_of_several_members() -> None:
    data = FAULTY.read_bytes()
    assert causes(Source.from_text("x", gzip.compress(data[:999]) + gzip.compress(data[999:])))


@pytest.mark.parametrize("pack", PACKERS)
def test_bomb_is_refused(pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BOMB_BYTES", 1 << 17)
    monkeypatch.setattr(inputs, "BOMB_RATIO", 90)
    with pytest.raises(BusbarError, match="unpacks to more than"):
        explain([Source.from_text("bomb", pack((b" " * 99 + b"\n") * (3 << 13)))])
    monkeypatch.setattr(inputs, "BOMB_RATIO", 1 << 20)
    monkeypatch.setattr(inputs, "_MOST_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(BusbarError, match="unpacks to more than"):
        explain([Source.from_text("bomb", pack((b" " * 99 + b"\n") * (3 << 13)))])


def _tar(packed: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{packed}") as archive:
        archive.add(FAULTY, "job.out")
    return file.getvalue()


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(FAULTY)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            b"\x28\xb5\x2f\xfd" + bytes(80),
            r"by zstd; pip install .* zstd -dc x \| busbar explain -",
        ),
        (_tar(""), "tar archive; unpack it .* tar -xf x"),
        (_tar("gz"), "contains a tar archive; unpack it .* tar -xf x"),
        (_zip(), "zip archive; unpack it .* unzip x"),
        (Path(sys.executable).read_bytes()[:100_000], "program or core file"),
        (b"%PDF-1.7\n" + bytes(range(256)) * 9, "PDF"),
        (bytes(range(256)) * 99, "binary file"),
    ],
)
def test_what_is_no_text_is_named(data: bytes, words: str) -> None:
    with pytest.raises(BusbarError, match=words) as refusal:
        explain([Source.from_text("x", data)])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-16-le"])
def test_encodings_of_windows(encoding: str) -> None:
    text = FAULTY.read_text().replace("\n", "\r\n")
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    assert causes(Source.from_text("x", (mark + text).encode(encoding))) == ["nccl-p2p-off"]


def test_beginning_of_a_log_that_was_rotated_while_a_job_wrote() -> None:
    assert causes(Source.from_text("x", bytes(3 << 20) + FAULTY.read_bytes())) == ["nccl-p2p-off"]


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(FAULTY.read_bytes())))
    assert main(["explain", "--json", "-"]) == 1
    assert [c["id"] for c in json.loads(capsys.readouterr().out)["causes"]] == ["nccl-p2p-off"]


def test_pipes_of_a_shell() -> None:
    """As ``<(command)`` and ``/dev/stdin`` name them."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as stream:
            stream.write(FAULTY.read_bytes())

    thread = threading.Thread(target=write)
    thread.start()
    assert causes(Path(f"/dev/fd/{reader}")) == ["nccl-p2p-off"]
    thread.join()
    os.close(reader)


def test_named_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(FAULTY.read_bytes()))
    writer.start()
    assert causes(pipe) == ["nccl-p2p-off"]
    writer.join()
    monkeypatch.setattr(inputs, "FIFO_SECONDS", 0.05)
    with pytest.raises(BusbarError, match="nothing was written into the pipe"):
        explain([pipe])


def test_directory_is_its_files(tmp_path: Path) -> None:
    lines = FAULTY.read_text().splitlines(keepends=True)
    with pytest.raises(BusbarError, match="has 0 files"):
        explain([tmp_path])
    (tmp_path / "stdout").write_text("".join(line for line in lines if "NCCL INFO" not in line))
    (tmp_path / "nccl.log").write_text("".join(line for line in lines if "NCCL INFO" in line))
    (run,) = explain([tmp_path])
    assert run.files == (f"{tmp_path}/stdout", f"{tmp_path}/nccl.log")


def test_device_is_refused() -> None:
    with pytest.raises(BusbarError, match="no known tool output"):
        explain([Path("/dev/null")])


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "--json", "none.log"],
        ["explain", "--json"],
        ["explain", "--json", "--engine=x", "none.log"],
        ["expect", "--json", "--site", "none"],
        ["check", "--json", "--site", "none"],
        ["preflight", "--json", "--site", "none", "none.sif"],
        ["site", "show", "--json", "none"],
    ],
)
def test_json_for_exit_status_2(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(words)  # the checks run in a process of their own
    except SystemExit as end:
        status = int(end.code or 0)
    output = capfd.readouterr()
    document = json.loads(output.out)
    assert status == 2
    assert document["schema"] == "busbar-error/1"
    assert document["error"]["what"]
    assert document["error"]["what"] in output.err


# ---- logs that a collector keeps in a form of its own
TIME = "2026-11-21T07:23:34.512345678Z"


def docker(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": TIME})


def journal(line: str) -> str:
    fields = {"_HOSTNAME": "n1", "PRIORITY": "6", "__REALTIME_TIMESTAMP": "1763709814512345"}
    return json.dumps({**fields, "MESSAGE": line})


def journal_bytes(line: str) -> str:
    return json.dumps({"PRIORITY": "6", "MESSAGE": list(("\x1b[0m" + line).encode())})


WRAPPED: dict[str, Callable[[str], str]] = {
    "docker": docker,
    "cri": lambda line: f"{TIME} stdout F {line}",
    "cri with an offset": lambda line: f"2026-11-21T07:23:34.5+01:00 stderr F {line}",
    "journald": journal,
    "journald, bytes": journal_bytes,
    "logstash": lambda line: json.dumps({"@timestamp": TIME, "message": line}),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_wrapped_logs(wrap: Callable[[str], str]) -> None:
    lines = [
        *nccl_table({1 << 28: 120.0, 1 << 30: 130.0}).splitlines()[:-2],
        "# Out of bounds values : 0 OK",
        "",
        "node0:1000:4720 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space"
        " left on device",
    ]
    plain = run("\n".join(lines) + "\n")
    wrapped = run("\n".join(map(wrap, lines)) + "\n")
    assert len(plain.readings) == 8
    assert [r.value for r in wrapped.readings] == [r.value for r in plain.readings]
    assert [r.evidence.line for r in wrapped.readings if r.evidence] == [
        r.evidence.line for r in plain.readings if r.evidence
    ]
    line = wrap(lines[-1]) + "\n"
    for text in (line, '"cut off", "stream": "stdout"}\n' + line * 9):
        assert ids(run(text)) == {"shm-too-small"}, text


def test_pieces_of_a_long_line_are_joined() -> None:
    line = "x" * 100 + " fatal: NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
    pieces = [line[:140], line[140:] + "\n", "another line\n"]
    records = [json.dumps({"log": each, "stream": "stdout"}) for each in pieces]
    assert ids(run("\n".join(records))) == {"gpu-fault"}
    tags = [f"{TIME} stdout {tag} {each.strip()}" for tag, each in zip("PFF", pieces, strict=True)]
    assert ids(run("\n".join(tags))) == {"gpu-fault"}


def test_other_json_is_text() -> None:
    text = '{"log": 1, "stream": []}\n{"level": "error", "msg": "CUDA out of memory"}\n'
    assert ids(run(text)) == {"gpu-out-of-memory"}
