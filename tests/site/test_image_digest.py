# SPDX-License-Identifier: MIT
"""The digest of an image in the provenance of a run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from busbar.delivery.image import image_digest

HEX = "0123456789abcdef" * 4


def test_a_file_has_that_of_its_bytes(tmp_path: Path) -> None:
    image = tmp_path / "image.sif"
    image.write_bytes(b"image")
    assert image_digest(str(image)) == hashlib.sha256(b"image").hexdigest()
    image.write_bytes(b"other")
    assert image_digest(str(image)) == hashlib.sha256(b"other").hexdigest()


def test_a_pinned_name_has_its_own(tmp_path: Path) -> None:
    assert image_digest(f"docker://some/image@sha256:{HEX}") == HEX
    file = tmp_path / f"image@sha256:{HEX}"
    file.write_bytes(b"image")
    assert image_digest(str(file)) == hashlib.sha256(b"image").hexdigest()


def test_what_has_none_has_none(tmp_path: Path) -> None:
    assert image_digest(str(tmp_path)) == ""  # a sandbox
    assert image_digest("docker://some/image:tag") == ""
