# SPDX-License-Identifier: MIT
"""Site files, manifests and locks that are hard to read end in one line, in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from busbar import spack as lock
from busbar.boundary import read_text
from busbar.errors import BusbarError
from busbar.site.yamlfile import Document, load_yaml
from ci.spack import manifest
from tests.cases import cases
from tests.said import Command

pytestmark = pytest.mark.timeout(60)

BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
MERGE = "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}], k{n}: 1}}\n" for n in range(1, 12)
)
HOSTILE = {
    "bool tag": ("name: !!bool maybe", "has the tag"),
    "int tag": ('name: !!int ""', "has the tag"),
    "float tag": ('name: !!float ""', "has the tag"),
    "timestamp tag": ("name: !!timestamp foo", "has the tag"),
    "python tag": ("name: !!python/object/apply:os.system [id]", "has the tag"),
    "own tag": ("name: !x y", "has the tag"),
    "no tag": ("name: ! y", "has the tag"),
    "tag of a mapping": ("name: !!set {a, b}", "has the tag"),
    "tag of a key": ("!!int name: y", "has the tag"),
    "binary tag": ("name: !!binary ====", "has the tag"),
    "merge": ("a: &a {b: 1}\nname: {<<: *a}", "merge key"),
    "merge bomb": ("a0: &a0 {k: 1}\n" + MERGE, "merge key"),
    "aliases": ("a0: &a0 [1, 1, 1]\n" + BOMB, "aliases included"),
    "itself": ("name: &a [*a]", "refers to a node that contains it"),
    "key of itself": ("&a ? {b: *a} : c", ""),
    "base 60": ("name: " + ":".join(["1"] * 100_000), "a number has 199999 characters"),
    "base 60 float": ("name: " + ":".join(["1"] * 100_000) + ".5", "a number has"),
    "digits": ("name: " + "9" * 100_000, "a number has"),
    "underscores": ("name: 1" + "_" * 100_000, "a number has"),
    "hexadecimal": ("name: 0x" + "f" * 100_000, "a number has"),
    "date": ("name: 2026-13-41", "invalid value"),
    "value": ("name: =", "invalid YAML"),
    "flow": ("name: " + "[" * 100_000, "nested too deeply"),
    "braces": ("name: " + "{a: " * 100_000, "nested too deeply"),
    "blocks": ("- " * 100_000, "nested too deeply"),
    "complex keys": ("? " * 100_000, "nested too deeply"),
    "list key": ("? [a, b]\n: c", "invalid YAML"),
    "nodes": ("name: [" + "1," * 300_000 + "]", "more than"),
    "size": ("# " + "x" * 2**21, "has more than"),
    "null": ("name: a\x00b", "invalid YAML"),
    "anchors": ("".join(f"a{n}: &b {n}\n" for n in range(20)) + "c: *d", "invalid YAML"),
    "documents": ("a: 1\n---\nb: 2", "invalid YAML"),
    "percent": ("%YAML 9.9\n---\na: 1", "invalid YAML"),
}


@cases(("text", "words"), HOSTILE.values())
def test_a_hostile_site_is_one_line(
    text: str, words: str, tmp_path: Path, busbar: Command
) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(text)
    said = busbar.refuses(words, "site show", file)
    assert said.err.count("\n") == 1
    assert "site.yaml" in said.err
    with pytest.raises(BusbarError):
        manifest.load(file)


@cases("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_one_line(make, tmp_path: Path) -> None:
    path = tmp_path / "x"
    make(path)
    for read in (Document, load_yaml, lock.load):
        with pytest.raises(BusbarError, match="cannot be read"):
            read(path)
    with pytest.raises(OSError, match=r"regular|directory"):
        read_text(path)


@given(st.text(st.sampled_from("abc:-?[]{}&*!<>|#%'\"\n\t 0159._,@`=~")))
def test_any_text_is_data_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(text)
    try:
        Document(file)
    except BusbarError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most texts are no mapping


@cases(
    "text",
    [
        *("[" * 10**6, '{"a":' * 10**6, '"' + "\\u0000" * 10, "1e400", "-1e400", "NaN"),
        *("Infinity", "9" * 10**6, "-" + "9" * 30, "[1e999]", "", "\x00", "{" * 5),
    ],
)
def test_a_hostile_lock_is_one_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "spack.lock").write_text(text)
    with pytest.raises(BusbarError, match="not a Spack lock"):
        lock.load(tmp_path / "spack.lock")
