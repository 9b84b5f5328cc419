# SPDX-License-Identifier: MIT
"""Tar archives that try to write to the host, to read from it or to exhaust it."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path, PurePosixPath

import pytest

from busbar.cli import main
from busbar.errors import BusbarError
from busbar.preflight.confined import run_limited
from busbar.preflight.loader import View
from busbar.preflight.packed import unpacked
from tests.cases import some

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


def written(path: Path, entries: Iterable[Entry], mode: int = 0o6777) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, kind, target, content in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, len(content)
            info.mode = mode
            archive.addfile(info, io.BytesIO(content))
    path.chmod(0o644)  # root unpacks it as nobody
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
        assert not [path for path in out.rglob("*") if path.is_file()]
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
@pytest.mark.parametrize("case", some(WRITES, 2))
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
@pytest.mark.parametrize(("how", "target"), some(product([link, hard], READS), 2))
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
    refused = checked(written(tmp_path / "evil.tar", entries))
    assert "not a regular file" in refused or "Cannot mknod" in refused


@pytest.mark.run
def test_the_variables_of_an_image_are_data(tmp_path: Path, checked) -> None:
    archive = written(tmp_path / "image.tar", [file(FINGERPRINT, b'{"stack": "hosts"}')])
    assert "stack: must be" in checked(archive, ["PATH=/bin", "=", "novalue", "A B=1"])
    archive = written(tmp_path / "image.tar", [])
    assert "has more than 131071 characters" in checked(archive, ["X=" + "x" * 2**18])


def test_the_files_of_an_archive(tmp_path: Path) -> None:
    long = "/".join(["d" * 100] * 5)
    entries = [
        file("etc/conf", b"one"),
        file("./etc/conf", b"two"),
        hard("etc/same", "etc/conf"),
        link("lib", "usr/lib"),
        file("usr/lib/libx.so", b"library"),
        file("name\nwith newline", b"n"),
        file(long, b"long"),
        ("closed", tarfile.DIRTYPE, "", b""),
        file("closed/file", b"f"),
        ("dev/null", tarfile.CHRTYPE, "", b""),
    ]
    with unpacked(written(tmp_path / "image.tar", entries, mode=0o6000), "image") as files:
        view = View.of(files)
        assert view.text(PurePosixPath("/etc/conf")) == "two"
        assert view.text(PurePosixPath("/etc/same")) == "two"
        assert view.text(PurePosixPath("/lib/libx.so")) == "library"
        assert view.text(PurePosixPath("/name\nwith newline")) == "n"
        assert view.text(PurePosixPath("/", long)) == "long"
        assert view.text(PurePosixPath("/closed/file")) == "f"
        assert view.names(PurePosixPath("/etc")) == ["conf", "same"]
        assert files._where.is_dir()
    assert not files._where.exists()


def test_an_archive_that_is_none_is_one_line(tmp_path: Path) -> None:
    cut = tarfile.TarInfo("f")
    cut.size = 2**20
    for data in (b"text", cut.tobuf() + bytes(10)):
        (tmp_path / "image.tar").write_bytes(data)
        os.chmod(tmp_path / "image.tar", 0o644)
        failed = r"image: tar --extract failed: tar: \w"
        with (
            pytest.raises(BusbarError, match=failed) as refused,
            unpacked(tmp_path / "image.tar", "image"),
        ):
            pass
        assert "\n" not in str(refused.value)


@pytest.mark.run
def test_a_large_export_is_refused(tmp_path: Path, checked, monkeypatch) -> None:
    monkeypatch.setattr("busbar.delivery.image.MOST_BYTES", 2**20)
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


def runs(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_runtime_that_hangs_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 300 & echo $! >{pid}; wait"
    begin = time.monotonic()
    late = pytest.raises(BusbarError, match="took more than 3 s")
    with (tmp_path / "out").open("w+b") as out, late:
        run_limited(["sh", "-c", script], out, "image", "", 3, 2**20)
    assert time.monotonic() - begin < 120
    while runs(pid.read_text().strip()):
        assert time.monotonic() - begin < 120
        time.sleep(0.1)


def test_a_file_that_grows_without_end(tmp_path: Path) -> None:
    target = tmp_path / "image.sif"
    command = ["dd", "if=/dev/zero", f"of={target}", "bs=64k", "count=64"]
    with (tmp_path / "out").open("w+b") as out, pytest.raises(BusbarError, match="failed"):
        run_limited(command, out, "image", "", 30, 2**20)
    assert target.stat().st_size <= 2**20
