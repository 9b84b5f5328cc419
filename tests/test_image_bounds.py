# SPDX-License-Identifier: MIT
"""An image that is converted or loaded by its runtime cannot fill the disk or hang the check."""

from __future__ import annotations

import gzip
import io
import tarfile
import time
from pathlib import Path

import pytest

from busbar.delivery import bounds
from busbar.errors import BusbarError
from busbar.preflight.tarball import unpacked_bytes

MIB = 1 << 20


def tar_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def image_of(layers: list[bytes]) -> bytes:
    blobs = {f"blobs/sha256/{number}": layer for number, layer in enumerate(layers)}
    return tar_of({"oci-layout": b"{}", "index.json": b"{}", **blobs})


ZEROS = tar_of({f"zeros{number}": bytes(4 * MIB) for number in range(4)})
BOMBS = {
    "plain": image_of([ZEROS]),
    "gzip": image_of([gzip.compress(ZEROS)]),
    "gzip-in-gzip": gzip.compress(image_of([gzip.compress(ZEROS)])),
    "many-layers": image_of([gzip.compress(tar_of({"z": bytes(MIB)}))] * 16),
}


@pytest.mark.parametrize("name", BOMBS)
def test_the_unpacked_size_is_known_beforehand(name: str, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(BOMBS[name])
    assert 16 * MIB <= unpacked_bytes(path, "image", 64 * MIB) < 17 * MIB
    with pytest.raises(BusbarError, match="unpacks to more than"):
        unpacked_bytes(path, "image", 15 * MIB)


def test_a_sparse_member_counts_whole(tmp_path: Path) -> None:
    info = tarfile.TarInfo("sparse")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "sparse",
        "GNU.sparse.realsize": str(1 << 40),
    }
    content = b"0\n".ljust(512, b"\0")
    info.size = len(content)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(content))
    path = tmp_path / "image.tar"
    path.write_bytes(image_of([gzip.compress(layer.getvalue())]))
    with pytest.raises(BusbarError, match="unpacks to more than"):
        unpacked_bytes(path, "image", 1 << 37)


def test_a_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(BOMBS["gzip"])
    bounds.refuse_too_large(path, [tmp_path])
    usage = bounds.shutil.disk_usage(tmp_path)._replace(free=MIB)
    monkeypatch.setattr(bounds.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BusbarError, match="1 MiB free") as refused:
        bounds.refuse_too_large(path, [tmp_path])
    assert "\n" not in str(refused.value)


def runs(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_runtime_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 3)
    pid = tmp_path / "pid"
    script = f"sleep 300 & echo $! >{pid}; wait"
    begin = time.monotonic()
    with pytest.raises(BusbarError, match="took more than 3 s"):
        bounds.run_bounded(["sh", "-c", script], "image")
    assert time.monotonic() - begin < 120
    while runs(pid.read_text().strip()):
        assert time.monotonic() - begin < 120
        time.sleep(0.1)


def test_a_file_that_grows_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_BYTES", MIB)
    target = tmp_path / "image.sif"
    with pytest.raises(BusbarError, match="failed"):
        bounds.run_bounded(["dd", "if=/dev/zero", f"of={target}", "bs=64k", "count=64"], "image")
    assert target.stat().st_size <= MIB
