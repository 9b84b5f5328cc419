# SPDX-License-Identifier: MIT
"""Damaged and crafted ELF files, and trees of ld.so.conf: no exception, no endless loop."""

from __future__ import annotations

import io
import os
import struct
import sys
import tempfile
import time
from pathlib import Path, PurePosixPath

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings, strategies as st

from busbar.errors import BusbarError
from busbar.preflight import elf
from busbar.preflight.files import Directory
from busbar.preflight.loader import View, configured, version_faults
from tests.cases import cases

# The number of inputs; .ci/nightly tries more.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
pytestmark = pytest.mark.timeout(600 if EXAMPLES <= 100 else 0)
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
REAL = Path(sys.executable).resolve().read_bytes()
SECTION = 64  # bytes of a section header


class Bytes:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def open(self) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self.data))  # type: ignore[arg-type]


def small() -> bytes:
    """The headers and the dynamic sections of a real program, without its code."""
    file = ELFFile(io.BytesIO(REAL))
    wanted = (".dynamic", ".dynstr", ".gnu.version_r", ".gnu.version_d", ".shstrtab")
    data = bytearray(REAL[:64])
    sections = []
    for section in file.iter_sections():
        header = bytearray(REAL[_header(file, section.name) :][:SECTION])
        if section.name in wanted:
            struct.pack_into("<Q", header, 24, len(data))
            data += section.data()
        elif ".gnu" in section.name or section.name in (".dynsym", ".symtab"):
            header = bytearray(SECTION)
        sections.append(header)
    struct.pack_into("<Q", data, 40, len(data))
    return bytes(data + b"".join(sections))


def _header(file: ELFFile, name: str) -> int:
    return int(file["e_shoff"] + file.get_section_index(name) * file["e_shentsize"])


SMALL = small()


def _seed() -> ELFFile:
    return elf._File(io.BytesIO(SMALL))


def test_the_seed_is_a_program() -> None:
    facts = elf.read(Bytes(SMALL))
    assert facts
    assert "libc.so.6" in facts.needed
    assert facts.versions
    assert elf.read(Bytes(REAL)) == facts


Change = st.tuples(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=8))


@given(st.lists(Change, max_size=20), st.integers(0, len(SMALL)))
@FUZZ
def test_damaged_files_are_read_or_refused(changes: list[tuple[int, bytes]], end: int) -> None:
    data = bytearray(SMALL)
    for at, new in changes:
        data[at : at + len(new)] = new
    elf.read(Bytes(bytes(data[: end or None])))


def crafted(field: str, value: int) -> bytes:
    """The seed with one field of a header changed."""
    file, data = _seed(), bytearray(SMALL)
    name, _, key = field.partition("/")
    if name == "header":
        offset, form = {"shnum": (60, "<H"), "shentsize": (58, "<H"), "shoff": (40, "<Q")}[key]
    elif name == "verneed":
        section = file.get_section_by_name(".gnu.version_r")["sh_offset"]
        offset, form = {"next": (section + 12, "<I"), "cnt": (section + 2, "<H")}[key]
    else:
        at = {"info": (44, "<I"), "link": (40, "<I"), "size": (32, "<Q"), "entsize": (56, "<Q")}
        offset, form = at[key]
        offset += _header(file, name)
    struct.pack_into(form, data, offset, value & (256 ** struct.calcsize(form) - 1))
    return bytes(data)


FIELDS = ["header/shnum", "header/shentsize", "header/shoff", "verneed/next", "verneed/cnt"]
FIELDS += [
    f"{section}/{key}"
    for section in (".gnu.version_r", ".dynamic", ".dynstr", ".shstrtab")
    for key in ("info", "link", "size", "entsize")
]


def test_a_crafted_field_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "_MOST_READS", 2000)  # the next test reaches the limit itself
    slow = []
    for field in FIELDS:
        for value in (0, 1, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, -1):
            start = time.process_time()
            elf.read(Bytes(crafted(field, value)))
            if time.process_time() - start > 20:
                slow.append((field, value))
    assert slow == []


def test_a_loop_of_versions_ends_in_time() -> None:
    data = bytearray(crafted(".gnu.version_r/info", 0xFFFFFFFF))
    section = _seed().get_section_by_name(".gnu.version_r")["sh_offset"]
    struct.pack_into("<I", data, section + 12, 0)  # vn_next
    start = time.process_time()
    assert elf.read(Bytes(bytes(data))) is None
    assert time.process_time() - start < 20


@cases(
    "name",
    [
        *(b"sub/libx.so", b"/libx.so", b"../../etc/passwd", b"//libx.so", b"x" * 300, b"."),
        *(b"..", b"/", b"\xff\xfe.so", b"a\nb", b"a/" * 3000, b"\x1b]52;c;x\x07"),
    ],
)
def test_names_of_needed_libraries(name: bytes, tmp_path: Path) -> None:
    file = _seed()
    strings, dynamic = (file.get_section_by_name(n) for n in (".dynstr", ".dynamic"))
    # The strings move to the end, where there is room for a long name.
    data = bytearray(SMALL)
    table = strings.data() + name + b"\0"
    struct.pack_into("<Q", data, _header(file, ".dynstr") + 24, len(data))
    struct.pack_into("<Q", data, _header(file, ".dynstr") + 32, len(table))
    first = next(n for n, tag in enumerate(dynamic.iter_tags()) if tag.entry.d_tag == "DT_NEEDED")
    struct.pack_into("<Q", data, dynamic["sh_offset"] + first * 16 + 8, len(strings.data()))
    (tmp_path / "app").write_bytes(data + table)
    view = View.of(Directory(tmp_path))
    root = view.find(PurePosixPath("app"))
    assert root
    facts = elf.read(root)
    assert facts
    assert len(facts.needed[0]) > 0
    libraries = view.resolve(root)
    assert libraries[facts.needed[0]] is None
    assert version_faults({"app": root} | libraries) == []


WORDS = (
    "include * *.conf ld.so.conf a.conf /etc //usr/lib lib .. / # /etc/ld.so.conf [ **/* d/* /d"
)
Word = st.sampled_from([*WORDS.split(), "ld.so.conf", "\0", "x" * 300, "\n", "hwcap 0 nosegneg"])


@given(
    st.dictionaries(
        st.sampled_from(["ld.so.conf", "a.conf", "b.conf", "d/a.conf", "d/ld.so.conf"]),
        st.lists(Word, max_size=12).map(" ".join),
        max_size=5,
    ),
    st.lists(st.tuples(st.sampled_from(["l", "d/l", "c.conf"]), Word), max_size=3),
)
@FUZZ
def test_any_loader_configuration_ends(
    tmp_path: Path, files: dict[str, str], links: list[tuple[str, str]]
) -> None:
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    (root / "etc/d").mkdir(parents=True)
    for name, text in files.items():
        (root / "etc" / name).write_text(text)
    for name, target in links:
        path = root / "etc" / name
        if not path.is_symlink() and "\0" not in target:
            path.symlink_to(target)
    view = View.of(Directory(root))
    try:
        configured(view)
        assert view.search("libnone.so") is None
    except BusbarError as error:
        assert "\n" not in str(error)  # noqa: PT017 - few trees are refused
