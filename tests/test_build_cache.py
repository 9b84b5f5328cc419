# SPDX-License-Identifier: MIT
"""A program is compiled once for all that went into it, and never taken from another user."""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from busbar.check import build
from tests.files import executable
from tests.said import ran

pytestmark = pytest.mark.run

SOURCE = '#include "answer.hpp"\n#include <given.hpp>\nint main() { return ANSWER + GIVEN; }\n'
BUILD = [sys.executable, "-P", "-m", "busbar.check.build"]


class Directory:
    """Sources, a compiler that counts how often it compiles, and a cache of their own."""

    def __init__(self, path: Path) -> None:
        self.path, self.cache = path, path / "cache"
        self.wrapper, self.count = path / "c++", path / "count"
        (path / "include").mkdir()
        (path / "stage").mkdir()
        self.write("stage/program.cpp", SOURCE)
        self.write("stage/answer.hpp", "#define ANSWER 40\n")
        self.write("include/given.hpp", "#define GIVEN 2\n")
        self.compiler()
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache)}

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def compiler(self, more: str = "") -> None:
        """Write the compiler, a wrapper as MPI has them."""
        counted = f'case "$*" in *-###*|*" -E "*) ;; *) echo . >>{self.count} ;; esac'
        executable(self.wrapper, f'{counted}\nexec /usr/bin/c++ {more} "$@"')

    def built(self, *options: str, **variables: str) -> tuple[int, str]:
        """Build and run the program; return the runs of the compiler so far, and what was said."""
        command = [*BUILD, self.wrapper, "-I../include", *options, "program.cpp", "-o", "program"]
        (self.path / "stage" / "program").unlink(missing_ok=True)
        done = ran(*command, cwd=self.path / "stage", env={**self.environment, **variables})
        assert done.returncode == 0, done.stderr
        assert ran(self.path / "stage" / "program").returncode == 42
        return len(self.count.read_text().split()), done.stdout

    @property
    def entries(self) -> list[Path]:
        return sorted((self.cache / "busbar" / "programs").iterdir())


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_once_and_again_for_each_part(directory: Directory) -> None:
    assert directory.built() == (1, "")
    assert directory.built() == (1, "")
    assert (directory.cache / "busbar" / "programs").stat().st_mode & 0o777 == 0o700
    # Another checkout or flag is another program; both are kept.
    directory.write("stage/answer.hpp", "#define ANSWER 41 - 1\n")
    assert directory.built() == (2, "")
    assert directory.built("-O1") == (3, "")
    assert directory.built(LD_RUN_PATH="/opt") == (4, "")
    directory.compiler("-DMORE")
    assert directory.built() == (5, "")
    assert directory.built() == (5, "")
    # So is another header of the MPI, even if only a macro differs that nothing uses.
    directory.write("include/given.hpp", "#define GIVEN 1 + 1\n")
    assert directory.built() == (6, "")
    directory.write("include/given.hpp", "#define GIVEN 1 + 1\n#define UNUSED\n")
    assert directory.built() == (7, "")
    assert directory.built() == (7, "")
    assert len(directory.entries) == 7


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[1:]]
)
def test_a_damaged_one_is_compiled_again(directory: Directory, damage) -> None:
    directory.built()
    (entry,) = directory.entries
    entry.write_bytes(damage(entry.read_bytes()))
    runs, said = directory.built()
    assert (runs, f"{entry} was damaged" in said) == (2, True)
    assert directory.built() == (2, "")


def test_what_others_can_change_is_not_used(directory: Directory, tmp_path: Path) -> None:
    directory.built()
    programs = directory.cache / "busbar" / "programs"
    for path in (programs, programs.parent, directory.cache):
        path.chmod(0o777)
        said = directory.built()[1]
        assert f"anyone can write to {path}" in said
        assert "compiled programs are not cached" in said
        path.chmod(0o700)
    assert directory.built() == (4, "")
    if os.geteuid():
        return
    for path in (programs, directory.cache):  # root takes nothing of a user, as with sudo -E
        os.chown(path, 1000, 1000)
        assert " owns " in directory.built()[1]
        os.chown(path, 0, 0)
    link = tmp_path / "link"
    link.symlink_to(directory.cache)
    os.lchown(link, 1000, 1000)
    assert "is a link of" in directory.built(XDG_CACHE_HOME=str(link))[1]


def test_without_a_place_or_a_compiler_that_says_what_it_does(directory: Directory) -> None:
    (directory.cache).write_text("a file")
    assert directory.built() == (1, "")
    directory.cache.unlink()
    counted = f'case "$*" in *-###*) exit 0 ;; *" -E "*) ;; *) echo . >>{directory.count} ;; esac'
    directory.wrapper.write_text(f'#!/bin/sh\n{counted}\nc++ "$@"\n')
    assert directory.built() == (2, "")
    assert directory.built() == (3, "")
    directory.compiler()
    directory.write("stage/program.cpp", "int main() { return x; }\n")
    done = ran(
        *(*BUILD, directory.wrapper, "program.cpp", "-o", "program"),
        cwd=directory.path / "stage",
        env=directory.environment,
    )
    assert done.returncode == 1
    assert "was not declared" in done.stderr
    assert directory.entries == []


def test_many_at_once_and_one_that_is_killed(directory: Directory, tmp_path: Path) -> None:
    stages = [tmp_path / f"stage{n}" for n in range(8)]
    for stage in stages:
        shutil.copytree(tmp_path / "stage", stage)
    command = [*BUILD, directory.wrapper, "-I../include", "program.cpp", "-o", "program"]

    def one(stage: Path) -> int:
        limit = ["timeout", "-s", "KILL", "0.3"] if stage == stages[3] else []
        done = ran(*limit, *command, cwd=stage, env=directory.environment)
        return done.returncode or ran(stage / "program").returncode

    with ThreadPoolExecutor() as pool:
        statuses = list(pool.map(one, stages))
    assert {*statuses} - {137, -9} == {42}
    runs = len(directory.count.read_text().split())
    assert directory.built() == (runs, "")


def test_the_oldest_go_first(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        directory.built(f"-DNUMBER={number}")
        os.utime(directory.entries[-1], (number, number))
    programs = directory.entries[0].parent
    size = directory.entries[0].stat().st_size
    monkeypatch.setattr(build, "MOST_BYTES", int(2.5 * size))
    newest = sorted(programs.iterdir(), key=lambda entry: entry.stat().st_mtime)[1:]
    build._remove_oldest(programs)
    assert directory.entries == sorted(newest)
