# SPDX-License-Identifier: MIT
"""Tar archives that try to exhaust the host."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from busbar.cli import main
from busbar.errors import BusbarError
from busbar.preflight import tarball
from busbar.preflight.packed import archive_kind

pytestmark = pytest.mark.timeout(300)

Entry = tuple[str, bytes, str, bytes]
"""Name, type, link target, content."""


def file(name: str, content: bytes = b"") -> Entry:
    return name, tarfile.REGTYPE, "", content


def written(path: Path, entries: Iterable[Entry], **options: object) -> Path:
    with tarfile.open(path, "w", **options) as archive:  # type: ignore[call-overload]
        for name, kind, target, content in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, len(content)
            info.mode = 0o6777
            archive.addfile(info, io.BytesIO(content))
    return path


def header(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(*records: tuple[str, str]) -> bytes:
    body = b""
    for key, value in records:
        rest = len(key) + len(value) + 3
        length = rest + len(str(rest))
        length = rest + len(str(length))
        body += f"{length} {key}={value}\n".encode()
    padding = bytes(-len(body) % 512)
    return header("x", tarfile.XHDTYPE, len(body)) + body + padding


def records(nbytes: int) -> bytes:
    """A header whose records state a length of 5, and each of which has a key up to its end."""
    body = b"5 ab\n" * (nbytes // 5) + b"=\n"
    return header("x", tarfile.XHDTYPE, len(body)) + body + bytes(-len(body) % 512)


BOMBS: dict[str, Callable[[], bytes]] = {
    "pax": lambda: header("x", tarfile.XHDTYPE, 3 * 2**30) + bytes(2**19),
    "global pax": lambda: header("g", tarfile.XGLTYPE, 3 * 2**30) + bytes(2**19),
    "gnu name": lambda: header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 2**40) + bytes(2**19),
    "gnu link": lambda: header("././@LongLink", tarfile.GNUTYPE_LONGLINK, 2**60) + bytes(2**19),
    "nested": lambda: header("x", tarfile.XHDTYPE, 0) * 5000,
    "pax size": lambda: pax(("size", str(2**62))) + header("f", tarfile.REGTYPE, 0),
    "negative size": lambda: pax(("size", "-1024")) + header("f", tarfile.REGTYPE, 0) * 3,
    "digits": lambda: pax(("size", "9" * 30_000)) + header("f", tarfile.REGTYPE, 0),
    "sparse map": lambda: (
        pax(("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.name", "f"))
        + header("f", tarfile.REGTYPE, 512)
        + b"99999999999\n"
        + b"0\n" * 2**15
    ),
    "sparse size": lambda: (
        pax(("GNU.sparse.size", str(2**60)), ("GNU.sparse.map", "0,1," * 1000 + "0,1"))
        + header("f", tarfile.REGTYPE, 0)
    ),
    "old sparse": lambda: (
        header("f", tarfile.GNUTYPE_SPARSE, 512)[:482] + b"\x01" + bytes(29) + b"\x31" * 2**19
    ),
    "overlapping records": lambda: records(250_000),
    "name": lambda: pax(("path", "d/" * 4000)) + header("f", tarfile.REGTYPE, 0),
    "link": lambda: pax(("linkpath", "d/" * 4000)) + header("f", tarfile.SYMTYPE, 0),
    "no text": lambda: pax(("path", "\x00")) + header("f", tarfile.REGTYPE, 0),
    "cut": lambda: header("f", tarfile.REGTYPE, 2**20) + bytes(10),
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gz": lambda data: gzip.compress(data, 1),
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_header_bombs_are_one_line(
    tmp_path: Path, bomb: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "image.tar"
    first = header("first", tarfile.REGTYPE, 0)
    for data in (BOMBS[bomb](), first + BOMBS[bomb]()):
        for packing, pack in PACKED.items():
            path.write_bytes(pack(data))
            assert main(["preflight", str(path), "--site", "local"]) == 2, packing
            said = capfd.readouterr()
            assert said.err.count("\n") == 1, (packing, said.err)


def test_the_largest_headers_take_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(records(tarball._MOST_HEADER - 2048) + header("f", tarfile.REGTYPE, 0))
    tracemalloc.start()
    try:
        assert archive_kind(path) == ""
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()


def test_a_number_without_end_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_bytes(BOMBS["digits"]())
    with pytest.raises(BusbarError, match="a number of more than 255 digits"):
        archive_kind(tmp_path / "image.tar")


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz"])
def test_a_compression_bomb_ends_in_time(
    tmp_path: Path, packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(PACKED[packing](header("large", tarfile.REGTYPE, 2**40) + bytes(2**22)))
    with pytest.raises(BusbarError, match="not a readable tar archive"):
        archive_kind(path)
    monkeypatch.setattr(tarball, "_SECONDS", 1e-5)
    with pytest.raises(BusbarError, match="cannot be listed in"):
        archive_kind(path)


def test_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tarball, "MOST_MEMBERS", 1000)
    path = written(tmp_path / "image.tar", (file(f"f{n}") for n in range(1001)))
    with pytest.raises(BusbarError, match="more than 1,000 members"):
        archive_kind(path)


def test_an_image_that_is_a_fifo_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "image.tar")
    assert main(["preflight", str(tmp_path / "image.tar"), "--site", "local"]) == 2
    assert "no such file" in capfd.readouterr().err
