# SPDX-License-Identifier: MIT
"""Programs of ours are compiled once: what changes them makes them anew, nothing else does."""

from __future__ import annotations

import os
import subprocess

import pytest

from busbar.data import CHECKS

pytestmark = pytest.mark.run

KEPT = CHECKS / "src" / "kept.sh"


@pytest.fixture
def compiled(tmp_path):
    """Compiles a program with a header; (what kept.sh said, what the program says)."""
    (tmp_path / "word.hpp").write_text('#define WORD "one"\n')
    (tmp_path / "say.cpp").write_text(
        '#include <cstdio>\n#include "word.hpp"\nint main() { std::puts(WORD); }\n'
    )

    def run(*options: str, cache: str = str(tmp_path / "cache"), compiler: str = "g++"):
        (tmp_path / "say").unlink(missing_ok=True)
        done = subprocess.run(
            [KEPT, compiler, *options, "say.cpp", "-o", "say"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"BUSBAR_CACHE": cache},
        )
        program = tmp_path / "say"
        said = subprocess.check_output([program], text=True) if program.exists() else ""
        return done, said.strip()

    run.here = tmp_path
    return run


def test_the_same_is_taken(compiled):
    first, said = compiled("-O1")
    assert first.stdout == ""
    assert said == "one"
    again, said = compiled("-O1")
    assert again.stdout.startswith("taken from ")
    assert said == "one"


def test_a_changed_header_or_option_is_compiled(compiled):
    compiled("-O1")
    assert compiled("-O2")[0].stdout == ""
    (compiled.here / "word.hpp").write_text('#define WORD "two"\n')
    done, said = compiled("-O1")
    assert done.stdout == ""
    assert said == "two"


def test_a_macro_of_a_header_counts_though_the_program_does_not_use_it(compiled):
    """So a new release of an MPI counts, which may only change its version."""
    compiled("-O1")
    with (compiled.here / "word.hpp").open("a") as header:
        header.write("#define VERSION 2\n")
    assert compiled("-O1")[0].stdout == ""


def test_what_the_wrapper_of_an_mpi_adds_counts(compiled):
    wrapper = compiled.here / "wrapper"
    text = '#!/bin/sh\n[ "$1" = -show ] && echo "g++ {}" && exit\nexec g++ "$@"\n'
    for libraries, said in (("-L/a", ""), ("-L/a", "taken from "), ("-L/b", "")):
        wrapper.write_text(text.format(libraries))
        wrapper.chmod(0o755)
        assert compiled(compiler=str(wrapper))[0].stdout.startswith(said)


def test_the_error_is_the_compilers_and_nothing_is_kept(compiled):
    (compiled.here / "say.cpp").write_text("no C++ at all;\n")
    done, _ = compiled()
    assert done.returncode != 0
    assert "say.cpp:1" in done.stderr
    assert not list((compiled.here / "cache").iterdir())


@pytest.mark.parametrize("cache", ["", "/dev/null/cache"])
def test_without_a_place_it_is_compiled_each_time(compiled, cache):
    for _ in range(2):
        done, said = compiled(cache=cache)
        assert (done.returncode, done.stdout, done.stderr, said) == (0, "", "", "one")


def test_an_empty_file_is_not_taken(compiled):
    compiled()
    (kept,) = (compiled.here / "cache").iterdir()
    kept.write_bytes(b"")
    done, said = compiled()
    assert (done.stdout, said) == ("", "one")
    assert kept.stat().st_size


def test_only_what_is_ours_is_deleted(compiled):
    compiled()
    cache = compiled.here / "cache"
    (old,) = cache.iterdir()
    (cache / "mine").mkdir()
    others = [cache / "mine" / "letter", cache / "letter"]
    for path in others:
        path.touch()
    for path in (*others, old):
        os.utime(path, (0, 0))
    compiled("-O1")
    assert not old.exists()
    assert all(path.exists() for path in others)
