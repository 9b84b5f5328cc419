# SPDX-License-Identifier: MIT
"""A bundle is the same for the same files, and no other byte, name or key is accepted."""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.cases import some
from tests.said import ran

ROOT = Path(__file__).parents[1]
UNBUNDLE = ROOT / "ci/unbundle.sh"
PACK = (ROOT / "ci/bundle.sh").read_text().split("# unbundle.sh makes", maxsplit=1)[1]


def pack(content: Path, output: Path, key: str = "") -> Path:
    """Pack a directory as the end of bundle.sh does."""
    script = f"set -euo pipefail; dir={content} output={output} missing=() KEY={key}\n#{PACK}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """Run unbundle.sh."""
    return ran(UNBUNDLE, *map(str, words))


def archive(*names: str, target: str = "") -> bytes:
    """Return an archive of files, or of links to a target."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            if target:
                entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return stream.getvalue()


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """What bundle.sh collects."""
    place = tmp_path / "content"
    (place / "wheels").mkdir(parents=True)
    (place / "ABOUT").write_text("commit: 0123\n")
    (place / "MISSING").write_text("ucx-1.14.1\n")
    (place / "busbar.tar").write_bytes(archive("busbar/Makefile"))
    (place / "wheels/one.whl").write_bytes(b"one" * 300)
    (place / "wheels" / ("long" * 30)).write_bytes(b"")
    return place


def test_two_bundles_are_the_same_and_install(content: Path, tmp_path: Path) -> None:
    first = pack(content, tmp_path / "a.tar")
    again = shutil.copytree(content, tmp_path / "again", copy_function=shutil.copy)
    assert first.read_bytes() == pack(again, tmp_path / "b.tar").read_bytes()
    done = run("install", first, tmp_path / "there")
    assert done.returncode == 0, done.stderr
    assert "commit: 0123\nmissing: ucx-1.14.1\n" in done.stdout
    assert "The signature was not checked" in done.stdout
    assert (tmp_path / "there/busbar/Makefile").is_file()
    command = f". {tmp_path}/there/env.sh; echo $PIP_FIND_LINKS ${{MIRROR-none}}"
    said = subprocess.check_output(["bash", "-c", command], text=True)
    assert said == f"file://{tmp_path}/there/wheels none\n"
    assert run("install", first, tmp_path / "there").returncode == 2, "it exists"
    assert run("verify", tmp_path / "none.tar").returncode == 2
    assert not list(tmp_path.glob(".bundle*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_unpacks_nothing_beside_files_of_another_user(content: Path, tmp_path: Path) -> None:
    """Who renames the directory that is written to, or the one above, leads root elsewhere."""
    theirs = tmp_path / "theirs"
    (theirs / "below").mkdir(parents=True)
    first, rest = pack(content, theirs / "below" / "a.tar"), iter("abcd")
    for owner, mode, status in ((0, 0o755, 0), (0, 0o1777, 0), (0, 0o777, 2), (65534, 0o755, 2)):
        os.chown(theirs, owner, owner)
        theirs.chmod(mode)
        for words in (("verify", first), ("install", first, theirs / next(rest))):
            done = run(*words)
            assert done.returncode == status, done.stderr
            assert (f"can change {theirs};" in done.stderr) == (status == 2), done.stderr


def test_changed_bytes_and_cuts_are_found(content: Path, tmp_path: Path) -> None:
    path = pack(content, tmp_path / "a.tar")
    assert run("verify", path).returncode == 0
    good = path.read_bytes()
    places = random.Random(1).sample(range(len(good)), 40)  # noqa: S311 - not a secret
    for place in {*some(places, 8), 0, 120, 136, 511, 600, len(good) - 1}:
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert run("verify", path).returncode == 1, place
    for end in (0, 511, 5000, len(good) - 512, len(good) - 1):
        path.write_bytes(good[:end])
        assert run("verify", path).returncode == 1, end
    path.write_bytes(good + bytes(tarfile.RECORDSIZE))
    assert run("verify", path).returncode == 1


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("../out", ""),
        ("/tmp/out", ""),
        ("wheels/../../out", ""),
        ("link", "/etc/passwd"),
        ("with\nline", ""),
    ],
)
def test_what_leaves_the_directory_is_refused(
    content: Path, tmp_path: Path, name: str, target: str
) -> None:
    """Whoever makes a bundle can give it the right digest."""
    path, parts = pack(content, tmp_path / "a.tar"), tmp_path / "parts"
    parts.mkdir()
    # Python 3.11.2 of Debian 12 has no filters for archives.
    ran("tar", "--extract", "--file", path, "--directory", parts, check=True)
    inner = (parts / "content.tar").read_bytes().rstrip(b"\0")
    padded = inner + bytes(-len(inner) % 512)
    (parts / "content.tar").write_bytes(padded + archive(name, target=target))
    digest = hashlib.sha256((parts / "content.tar").read_bytes()).hexdigest()
    (parts / "content.sha256").write_text(f"{digest}  content.tar\n")
    command = re.findall(r"\n    (tar --create .*)", UNBUNDLE.read_text())[0]
    script = f"set -- {path} {parts} content.tar content.sha256; {command}"
    subprocess.run(["bash", "-c", script], env=os.environ | {"LC_ALL": "C"}, check=True)
    done = run("install", path, tmp_path / "there")
    assert done.returncode == 1
    assert "is not a regular file below the bundle" in done.stderr
    assert not (tmp_path / "there").exists()


def test_only_a_trusted_key_is_accepted(content: Path, tmp_path: Path) -> None:
    for name in ("own", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(command, check=True)
        key = (tmp_path / f"{name}.pub").read_text()
        (tmp_path / f"{name}.signers").write_text(f"staff@centre.example {key}")
    path = pack(content, tmp_path / "signed.tar", str(tmp_path / "own"))
    assert run("verify", path, tmp_path / "own.signers").returncode == 0
    done = run("verify", path, tmp_path / "other.signers")
    assert done.returncode == 1
    assert "its key is not in" in done.stderr
    done = run("verify", pack(content, tmp_path / "a.tar"), tmp_path / "own.signers")
    assert done.returncode == 1
    assert "is not signed" in done.stderr
