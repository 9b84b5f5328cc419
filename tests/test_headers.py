# SPDX-License-Identifier: MIT
"""Every source file states its licence."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePath

LICENCE = "SPDX-License-Identifier: MIT"
KINDS = {
    *(".py", ".sh", ".cpp", ".hpp", ".yaml", ".yml", ".j2", ".env", ".toml", ".def", ".conf"),
    *("Makefile", "Dockerfile"),
}
RECORDED = ("tests/data/", "tests/golden/")


def is_source(name: str) -> bool:
    path = PurePath(name)
    return bool({path.suffix, path.name} & KINDS)


def is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def test_every_source_file_states_its_licence(root: Path) -> None:
    listed = subprocess.check_output(["git", "ls-files"], cwd=root, text=True).splitlines()
    files = [name for name in listed if (root / name).is_file() and not name.startswith(RECORDED)]
    sources = [name for name in files if is_source(name) or is_script(root / name)]
    assert len(sources) > 300
    assert [
        name
        for name in sources
        if LICENCE not in "".join((root / name).read_text().splitlines(keepends=True)[:3])
    ] == []
