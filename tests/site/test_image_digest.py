# SPDX-License-Identifier: MIT
"""The digest of an image in the provenance of a run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from busbar.delivery.image import image_digest
from tests.cases import cases

HEX = "0123456789abcdef" * 4


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that prints what Docker prints, and the file that it prints."""
    printed = tmp_path / "printed"
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\n[ -e {printed} ] && exec cat {printed}\necho '[]'; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return printed


def test_a_file_has_that_of_its_bytes(tmp_path: Path) -> None:
    image = tmp_path / "image.sif"
    image.write_bytes(b"image")
    assert image_digest(str(image), "apptainer") == hashlib.sha256(b"image").hexdigest()
    image.write_bytes(b"other")
    assert image_digest(str(image), "apptainer") == hashlib.sha256(b"other").hexdigest()


def test_a_pinned_name_has_its_own(tmp_path: Path) -> None:
    assert image_digest(f"docker://some/image@sha256:{HEX}", "apptainer") == HEX
    file = tmp_path / f"image@sha256:{HEX}"
    file.write_bytes(b"image")
    assert image_digest(str(file), "apptainer") == hashlib.sha256(b"image").hexdigest()


@cases("identity", [HEX, f"sha256:{HEX}"])
def test_a_store_names_it(identity: str, docker: Path) -> None:
    docker.write_text(f'[{{"Id": "{identity}", "Config": {{"Env": null}}}}]')
    assert image_digest("some/image:tag", "docker") == HEX


def test_what_has_none_has_none(tmp_path: Path, docker: Path) -> None:
    assert image_digest(str(tmp_path), "apptainer") == ""  # a sandbox
    assert image_digest("docker://some/image:tag", "apptainer") == ""
    assert image_digest("not/pulled", "docker") == ""
