# SPDX-License-Identifier: MIT
"""Sandboxes and SIFs that try to read or to block the host."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path, PurePosixPath

import pytest

from busbar import cli
from busbar.errors import BusbarError
from busbar.preflight.files import Directory
from busbar.preflight.loader import View, configured
from busbar.preflight.packed import Sif, open_image
from busbar.preflight.plan import Contents
from tests.cases import some

SECRET = "the-secret-of-the-host"
FINGERPRINT = "opt/busbar/fingerprint.json"
ENVIRONMENT = ".singularity.d/env/10-docker2singularity.sh"
LOADER = "etc/ld.so.conf"
FILES = [FINGERPRINT, ENVIRONMENT, LOADER]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOST_SECRET", SECRET)
    root = tmp_path / "image"
    for directory in ("usr/lib", "opt/busbar/bin", ".singularity.d/env", "etc"):
        (root / directory).mkdir(parents=True)
    (tmp_path / "secret").write_text(f'export SECRET="{SECRET}"\n{{"stack": "{SECRET}"}}\n')
    return root


Judged = Callable[..., str]


@pytest.fixture
def judged(capsys: pytest.CaptureFixture[str]) -> Judged:
    """Preflight ends with a verdict or with one line, and says nothing of the host's files."""

    def run(image: Path, *words: str) -> str:
        status = cli.main(["preflight", str(image), "--site", "local", *words])
        said = capsys.readouterr()
        assert status in (1, 2), said
        if status == 2:
            assert not said.out
            assert said.err.count("\n") == 1, said.err
        assert SECRET not in said.out + said.err
        return said.err

    return run


def forms(image: Path) -> Iterator[Path]:
    """The sandbox, and then a SIF of it."""
    yield image
    yield _packed(image)


def a_device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root makes device nodes")


SPECIAL: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": lambda path: os.mknod(path, 0o666 | stat.S_IFSOCK),
    "device": a_device,
    "directory": os.mkdir,
}


@pytest.mark.parametrize(("file", "kind"), some(product(FILES, SPECIAL), 3))
def test_special_files_are_refused(image: Path, file: str, kind: str, judged: Judged) -> None:
    SPECIAL[kind](image / file)
    for form in forms(image):
        assert "not a regular file" in judged(form)


TARGETS = {
    "absolute": "{secret}",
    "relative": "../../../../../../../../../../../../../..{secret}",
    "environ": "/proc/self/environ",
    "zero": "/dev/zero",
    "itself": "{file}",
}


@pytest.mark.parametrize(("file", "target"), some(product(FILES, TARGETS), 2))
def test_links_are_resolved_inside(image: Path, file: str, target: str, judged: Judged) -> None:
    secret = image.parent / "secret"
    (image / file).symlink_to(TARGETS[target].format(secret=secret, file=f"/{file}"))
    for form in forms(image):
        judged(form)
        assert SECRET not in View.of(open_image(form)).text(PurePosixPath("/", file))


@pytest.mark.parametrize("directory", [".singularity.d", ".singularity.d/env", "opt", "etc"])
def test_linked_directories_stay_inside(image: Path, directory: str, judged: Judged) -> None:
    host = image.parent / "host"
    for name in (directory, ""):
        rest = Path(ENVIRONMENT).relative_to(directory) if directory in ENVIRONMENT else "env"
        (host / name / rest).parent.mkdir(parents=True, exist_ok=True)
        (host / name / rest).write_text(f"export SECRET={SECRET}\n")
    (host / "busbar").mkdir()
    (host / "busbar/fingerprint.json").write_text(f'{{"stack": "{SECRET}"}}')
    (host / "ld.so.conf").write_text(f"/{SECRET}\n")
    shutil.rmtree(image / directory)
    (image / directory).symlink_to(host)
    for form in forms(image):
        judged(form)
        contents = Contents.of_file(form)
        assert contents.fingerprint is None
        assert SECRET not in str(contents.variables)
        assert f"/{SECRET}" not in configured(View.of(contents.files))


def test_a_link_in_the_image_is_followed_inside(image: Path) -> None:
    (image / "real").mkdir()
    (image / "real/10-x.sh").write_text("export INSIDE=yes\n")
    shutil.rmtree(image / ".singularity.d/env")
    (image / ".singularity.d/env").symlink_to("/real")
    assert Contents.of_file(image).variables == {"INSIDE": "yes"}
    assert Contents.of_file(_packed(image)).variables == {"INSIDE": "yes"}


def test_links_are_resolved_as_the_kernel_does(image: Path) -> None:
    (image / "a/b/c").mkdir(parents=True)
    (image / "a/b/file").write_text("right")
    (image / "file").write_text("wrong")
    (image / "link").symlink_to("a/b/c")
    view = View.of(Directory(image))
    # ".." after a link is the parent of its target.
    assert view.text(PurePosixPath("/link/../file")) == "right"
    assert view.text(PurePosixPath("//link/../../../../../a/b/file")) == "right"
    assert view.text(PurePosixPath("file")) == "wrong"


@pytest.mark.parametrize("names", [("x" * 300,), ("a",) * 3000, ("a\x00b",), ("\udc80",)])
def test_names_that_no_file_can_have(image: Path, names: tuple[str, ...]) -> None:
    assert View.of(Directory(image)).find(PurePosixPath("/", *names)) is None


def test_chains_of_links_end(image: Path) -> None:
    for number in range(60):
        (image / f"l{number}").symlink_to(f"l{number + 1}/" + "x/../" * 700)
    assert View.of(Directory(image)).find(PurePosixPath("/l0/file")) is None


LOADERS = {
    "itself": {LOADER: "include ld.so.conf\n/opt/own\n"},
    "each other": {
        LOADER: "include ld.so.conf.d/*.conf\n/opt/own\n",
        **{f"etc/ld.so.conf.d/{n}.conf": "include *.conf\n" for n in range(8)},
    },
    "by a link": {LOADER: "include again/ld.so.conf\n/opt/own\n"},
    "odd names": {LOADER: "//usr/lib\nlib\n../lib\n/opt/own\n/usr//lib/./..//lib\n\x00\n"},
    "long name": {LOADER: f"/{'x' * 5000}\ninclude {'y' * 3000}*\n/opt/own\n"},
    "stars": {LOADER: f"include {'*a' * 500}b\n/opt/own\n", f"etc/{'a' * 250}": ""},
}


@pytest.mark.parametrize("case", LOADERS)
def test_odd_loader_configurations_end(image: Path, case: str, judged: Judged) -> None:
    for name, text in LOADERS[case].items():
        (image / name).parent.mkdir(parents=True, exist_ok=True)
        (image / name).write_text(text)
    (image / "etc/again").symlink_to(".")
    judged(image)
    assert PurePosixPath("/opt/own") in View.of(Directory(image)).directories


@pytest.mark.parametrize(
    "text",
    [
        "/d\n" * 400_000,
        "".join(f"/d{n}\n" for n in range(300)),
        "include *.conf\n",
        "# " + "x" * 2**20,
    ],
)
def test_large_loader_configurations_are_refused(image: Path, text: str) -> None:
    (image / LOADER).write_text(text)
    for number in range(300):
        (image / f"etc/{number}.conf").write_text("")
    with pytest.raises(BusbarError, match="more than"):
        configured(View.of(Directory(image)))


@pytest.mark.parametrize("value", ["${X}${X}", "$X$X"])
def test_variables_do_not_grow(image: Path, value: str) -> None:
    (image / ENVIRONMENT).write_text("X=aaaaaaaa\n" + f"export X={value}\n" * 200)
    with pytest.raises(BusbarError, match="more than 131071 characters"):
        Contents.of_file(image)


def test_blank_lines_are_read_in_linear_time(image: Path) -> None:
    (image / ENVIRONMENT).write_text("\n" * 2**19 + " " * 2**18 + "\nexport LAST=1\n")
    assert Contents.of_file(image).variables == {"LAST": "1"}


@pytest.mark.parametrize("size", [2**20 + 1, 2**43])
def test_large_files_are_refused(image: Path, size: int, judged: Judged) -> None:
    try:
        for file in FILES:
            with (image / file).open("wb") as sparse:
                sparse.truncate(size)
    except OSError:
        pytest.skip("the file system has no file of that size")
    assert "ore than 1 MiB" in (error := judged(image)) or "at most" in error


@pytest.mark.parametrize(
    "text",
    ["[" * 10**5, '{"a":' * 10**5, '{"stack": 1e400}', '{"stack": ' + "1" * 10**5 + "}", "NaN"],
)
def test_json_that_is_hard_to_read(image: Path, text: str, judged: Judged) -> None:
    (image / FINGERPRINT).write_text(text)
    error = judged(image)
    assert ("must be a mapping" if text == "NaN" else "not valid JSON") in error


@pytest.mark.parametrize("path", ["//opt/x", "opt/x", "../opt/x", "/opt/../opt/x", "x" * 300])
def test_programs_by_odd_names(image: Path, path: str, judged: Judged) -> None:
    (image / "opt/x").write_text("#!/bin/sh\n")
    error = judged(image, "--program", path)
    assert "--program" in error


def _packed(image: Path) -> Path:
    if not shutil.which("mksquashfs"):
        pytest.skip("no mksquashfs (squashfs-tools) here")
    sif = image.with_suffix(".sif")
    command = ["mksquashfs", str(image), str(sif), "-quiet", "-no-progress", "-noappend"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sif


def test_a_sif_is_read_without_the_rights_of_root(image: Path) -> None:
    program = image / "opt/busbar/bin/tool"
    program.write_text("text")
    program.chmod(0o6755)
    sif = Sif(_packed(image))
    with sif.open(PurePosixPath("/opt/busbar/bin/tool")) as stream:
        assert stream.read() == b"text"
        status = os.fstat(stream.fileno())
    assert status.st_mode & 0o6000 == 0
    assert status.st_uid != 0 or os.geteuid() != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its rights up")
def test_root_refuses_a_sif_that_nobody_else_can_read(image: Path) -> None:
    sif = _packed(image)
    sif.chmod(0o600)
    with pytest.raises(BusbarError, match="chmod o"):
        Sif(sif)


def test_an_odd_sif_is_read(image: Path) -> None:
    name = "a -> b\n-rw-r--r-- 0/0 1 2020-01-01 00:00 squashfs-root/etc/forged"
    name = name.replace("/", "|")  # no file system has a slash in a name
    (image / name).write_text("x")
    (image / "etc/[a]*?\\").write_text("right")
    sif = Sif(_packed(image))
    with sif.open(PurePosixPath("/etc/[a]*?\\")) as stream:
        assert stream.read() == b"right"


def test_a_damaged_sif_is_one_line(image: Path, judged: Judged) -> None:
    sif = _packed(image)
    data = bytearray(sif.read_bytes())
    for start in range(96, len(data), 7):
        data[start] ^= 0xFF
    sif.write_bytes(data)
    assert "unsquashfs" in judged(sif)
