# SPDX-License-Identifier: MIT
"""Images take Debian's packages from the snapshot of their base."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.files import executable
from tests.said import ran

ROOT = Path(__file__).parents[2]
MIRROR = """\
Types: deb
# http://snapshot.example.org/archive/debian/20250520T000000Z
URIs: http://mirror.example.org/debian
Suites: bookworm bookworm-updates

Types: deb
# http://snapshot.example.org/archive/debian-security/20250520T000000Z
URIs: http://mirror.example.org/debian-security
Suites: bookworm-security
"""
SNAPSHOT = """\
Types: deb
URIs: http://snapshot.example.org/archive/debian/20250520T000000Z
Suites: bookworm bookworm-updates

Types: deb
URIs: http://snapshot.example.org/archive/debian-security/20250520T000000Z
Suites: bookworm-security
"""
PLAIN = "Types: deb\n# the mirror of this center\nURIs: http://mirror.example.org/debian\n"
# It stands in for an archive, of which the snapshot cannot be reached if asked for.
APT_GET = """\
echo "$@" >>calls
case "$*" in *Error-Mode*) exit "$UNREACHABLE" ;; esac
"""


@pytest.mark.parametrize(
    ("before", "unreachable", "after"),
    [(MIRROR, 0, SNAPSHOT), (MIRROR, 100, MIRROR), (PLAIN, 0, PLAIN), (None, 0, None)],
)
def test_the_source_of_packages(
    before: str | None, unreachable: int, after: str | None, tmp_path: Path
) -> None:
    for name, text in {"apt-get": APT_GET, "dpkg-query": "echo 'file 1'"}.items():
        executable(tmp_path / name, text)
    sources = tmp_path / "debian.sources"
    if before is not None:
        sources.write_text(before)
    path = f"{tmp_path}:{os.environ['PATH']}"
    variables = {"PATH": path, "APT_SOURCES": str(sources), "UNREACHABLE": str(unreachable)}
    done = ran("sh", ROOT / "containers/apt.sh", "file", check=True, cwd=tmp_path, env=variables)
    assert (sources.read_text() if sources.exists() else None) == after
    assert ("come from the mirror" in done.stderr) == bool(unreachable)
    assert done.stdout == "file 1\n"
    assert (
        (tmp_path / "calls").read_text().splitlines()[-1].endswith("--no-install-recommends file")
    )
