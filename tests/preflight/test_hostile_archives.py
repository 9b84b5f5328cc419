# SPDX-License-Identifier: MIT
"""Tar archives that try to write to the host, to read from it or to exhaust it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

from busbar.cli import main
from busbar.errors import BusbarError
from busbar.preflight import packed, tarball
from busbar.preflight.loader import View
from busbar.preflight.packed import Archive, archive_kind

from ..files import executable
from ..small_site import small_site

pytestmark = pytest.mark.timeout(300)

ENVIRONMENT = ".singularity.d/env/10-docker2singularity.sh"
FINGERPRINT = "opt/busbar/fingerprint.json"
Entry = tuple[str, bytes, str, bytes]
"""Name, type, link target, content."""


def file(name: str, content: bytes = b"") -> Entry:
    return name, tarfile.REGTYPE, "", content


def link(name: str, target: str) -> Entry:
    return name, tarfile.SYMTYPE, target, b""


def hard(name: str, target: str) -> Entry:
    return name, tarfile.LNKTYPE, target, b""


def written(path: Path, entries: Iterable[Entry], **options: object) -> Path:
    with tarfile.open(path, "w", **options) as archive:  # type: ignore[call-overload]
        for name, kind, target, content in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, len(content)
            info.mode = 0o6777
            archive.addfile(info, io.BytesIO(content))
    return path


STORE = """\
case "$1 $2" in
"image inspect") cat "{inspected}" ;;
"create "*) echo container ;;
"export "*) cat "{archive}" ;;
esac
"""


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """The line that ``busbar check`` refuses an image of a store with; podman is a stand-in."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'store'}:{os.environ['PATH']}")
    site = small_site(tmp_path, runtime="podman")

    def run(archive: Path, env: Iterable[str] = ()) -> str:
        inspected = tmp_path / "inspected"
        inspected.write_text(json.dumps([{"Config": {"Env": list(env)}}]))
        store = STORE.format(inspected=inspected, archive=archive)
        executable(tmp_path / "store/podman", store)
        out = tmp_path / "out"
        words = ["check", "--site", site, "--output", out, "--image", "evil:latest"]
        assert main([str(word) for word in words]) == 2
        said = capfd.readouterr()
        assert not said.out
        assert said.err.count("\n") == 1, said.err
        assert [path.name for path in out.rglob("*") if path.is_file()] == [".lock"]
        return said.err

    return run


def victim(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "env").mkdir(parents=True)
    for name in (".bashrc", "10-docker2singularity.sh", "env/10-docker2singularity.sh"):
        (home / name).write_text("untouched\n")
    return home


WRITES: dict[str, Callable[[Path], list[Entry]]] = {
    "file": lambda home: [link(ENVIRONMENT, f"{home}/.bashrc")],
    "env": lambda home: [link(".singularity.d/env", str(home))],
    "directory": lambda home: [link(".singularity.d", str(home))],
    "dotted": lambda home: [link("./.singularity.d", str(home))],
    "hard": lambda home: [hard(ENVIRONMENT, f"{home}/.bashrc")],
    "chain": lambda home: [link("a", str(home)), link(ENVIRONMENT, "/a/.bashrc")],
    "parent": lambda home: [link("opt", str(home)), file("opt/.bashrc", b"PWNED")],
    "hard to link": lambda home: [
        link("a", f"{home}/.bashrc"),
        hard(ENVIRONMENT, "a"),
        file(ENVIRONMENT, b"PWNED"),
    ],
    "dots": lambda home: [file(f"../../../../../../../../..{home}/.bashrc", b"PWNED")],
    "absolute": lambda home: [file(f"{home}/.bashrc", b"PWNED")],
}


@pytest.mark.run
@pytest.mark.parametrize("case", WRITES)
def test_nothing_is_written_through_an_image(tmp_path: Path, checked, case: str) -> None:
    home = victim(tmp_path)
    before = {path: path.stat() for path in home.rglob("*")}
    archive = written(tmp_path / "evil.tar", WRITES[case](home))
    checked(archive, ["X=`touch${IFS}/tmp/PWNED`", "Y=$(id)", 'Z="; id; "'])
    assert {path: path.stat() for path in home.rglob("*")} == before
    assert not Path("/tmp/PWNED").exists()


READS = {
    "absolute": "{secret}",
    "environ": "/proc/self/environ",
    "dots": "../../../../../../../../../../..{secret}",
}


@pytest.mark.run
@pytest.mark.parametrize("how", [link, hard])
@pytest.mark.parametrize("target", READS)
def test_nothing_is_read_through_an_image(tmp_path: Path, checked, how, target: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"stack": "the-secret"}')
    target = READS[target].format(secret=secret)
    message = checked(written(tmp_path / "evil.tar", [how(FINGERPRINT, target)]))
    assert "the-secret" not in message
    assert "fingerprint.json" in message


@pytest.mark.run
@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_no_device_of_an_image_is_opened(tmp_path: Path, checked, kind: bytes) -> None:
    entries = [(FINGERPRINT, kind, "", b"")]
    assert "not a regular file" in checked(written(tmp_path / "evil.tar", entries))


@pytest.mark.run
def test_the_variables_of_an_image_are_data(tmp_path: Path, checked) -> None:
    archive = written(tmp_path / "image.tar", [file(FINGERPRINT, b'{"stack": "hosts"}')])
    assert "stack: must be" in checked(archive, ["PATH=/bin", "=", "novalue", "A B=1"])
    archive = written(tmp_path / "image.tar", [])
    assert "has more than 131071 characters" in checked(archive, ["X=" + "x" * 2**18])


def test_the_files_of_an_archive_are_read_where_they_lie(tmp_path: Path) -> None:
    long = "/".join(["d" * 100] * 5)
    entries = [
        file("etc/conf", b"one"),
        file("./etc/conf", b"two"),
        hard("etc/same", "etc/conf"),
        hard("etc/later", "etc/none"),
        link("lib", "usr/lib"),
        file("usr/lib/libx.so", b"library"),
        file("name\nwith newline", b"n"),
        file(long, b"long"),
    ]
    view = View.of(Archive(written(tmp_path / "image.tar", entries), "image"))
    assert view.text(PurePosixPath("/etc/conf")) == "two"
    assert view.text(PurePosixPath("/etc/same")) == "two"
    assert view.find(PurePosixPath("/etc/later")) is None
    assert view.text(PurePosixPath("/lib/libx.so")) == "library"
    assert view.text(PurePosixPath("/name\nwith newline")) == "n"
    assert view.text(PurePosixPath("/", long)) == "long"
    assert view.names(PurePosixPath("/etc")) == ["conf", "later", "same"]


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
        path.write_bytes(data)
        with suppress(BusbarError):
            names = Archive(path, "image").names(PurePosixPath("/"))
            assert all(len(name) < 4096 for name in names)


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
    with pytest.raises(BusbarError, match="more than 1,000 members"):
        Archive(path, "image")


def test_a_large_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "LARGEST", 1000)
    archive = Archive(written(tmp_path / "image.tar", [file("large", bytes(1001))]), "image")
    with pytest.raises(BusbarError, match="not a regular file of at most"):
        archive.open(PurePosixPath("/large"))


@pytest.mark.run
def test_a_large_export_is_refused(tmp_path: Path, checked, monkeypatch) -> None:
    monkeypatch.setattr("busbar.delivery.bounds.MOST_BYTES", 2**20)
    archive = tmp_path / "large.tar"
    with archive.open("wb") as stream:
        stream.truncate(2**26)
    assert "podman export printed more than 0 GiB; use a smaller image" in checked(archive)


def test_an_image_that_is_a_fifo_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "image.tar")
    assert main(["preflight", str(tmp_path / "image.tar"), "--site", "local"]) == 2
    assert "no such file" in capfd.readouterr().err
