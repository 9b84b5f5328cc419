# SPDX-License-Identifier: MIT
"""The digest of an image in the provenance of a run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from busbar.delivery.image import _digest, inspected

HEX = "0123456789abcdef" * 4


def test_a_file_has_that_of_its_bytes(tmp_path: Path) -> None:
    image = tmp_path / "image.sif"
    for content in (b"image", b"other"):
        image.write_bytes(content)
        assert _digest(image) == hashlib.sha256(content).hexdigest()
    assert _digest(tmp_path) == ""  # a sandbox


def test_a_store_names_it() -> None:
    for identity in (HEX, f"sha256:{HEX}"):
        printed = json.dumps([{"Id": identity, "Config": {"Env": None}}])
        assert inspected(printed, "some/image:tag") == (HEX, {})
