# SPDX-License-Identifier: MIT
"""Files and programs that tests write."""

from __future__ import annotations

from pathlib import Path


def written(file: Path, text: str = "") -> Path:
    """A file, in directories that are made if they are missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def executable(file: Path, script: str) -> Path:
    """A program in the language of the shell."""
    written(file, f"#!/bin/sh\n{script}\n").chmod(0o755)
    return file
