# SPDX-License-Identifier: MIT
"""The ELF fields that the loader uses: soname, needed libraries, search paths, versions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader
from typing import Protocol, cast

from elftools.construct.lib.container import Container
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.sections import Section

_MOST_READS = 20_000
_MOST_BYTES = 16 * 2**20
_BLOCK = 8 * 2**20
_OVERLAP = 2**10
_DIGITS = 18
_WEAK = 2  # VER_FLG_WEAK: the loader only warns if such a version is missing


class ElfSource(Protocol):
    """A file that can be opened, and compared with others."""

    def open(self) -> BufferedReader:
        """Open it for reading."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Elf:
    """The dynamic section of one object."""

    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: frozenset[tuple[str, str]]
    """Required symbol versions as (library, version): ``libc.so.6`` and ``GLIBC_2.34``."""
    defines: frozenset[str]
    """Symbol versions that it defines."""
    machine: str
    """Machine of the ELF header: ``x64``, ``AArch64``."""


class _Bounded:
    """A file for pyelftools, which trusts every count in it.

    Each of its loops reads something in each step, so a limit on reads ends all of them.
    """

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream
        self._reads = 0
        self._bytes = 0
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int = -1) -> bytes:
        self._reads += 1
        self._bytes += max(size, 0)
        if size < 0 or self._reads > _MOST_READS or self._bytes > _MOST_BYTES:
            raise ValueError("more sections, versions or names than any library has")
        return self._stream.read(size)


class _File(ELFFile):
    """An object whose hash tables are not read: large libraries have 100,000 entries."""

    def _make_gnu_hash_section(  # type: ignore[override]
        self, section_header: Container, name: str
    ) -> Section:
        return Section(section_header, name, self)

    _make_elf_hash_section = _make_gnu_hash_section  # type: ignore[assignment]


@lru_cache(maxsize=512)
def read(file: ElfSource) -> Elf | None:
    """Read one file; return None if it is not a readable dynamic ELF object."""
    with file.open() as stream:
        try:
            return _dynamic(_File(cast(BufferedReader, _Bounded(stream))))
        except Exception:  # noqa: BLE001 - pyelftools raises anything on a damaged file
            return None


def _dynamic(file: ELFFile) -> Elf | None:
    dynamic = file.get_section_by_name(".dynamic")
    if not isinstance(dynamic, DynamicSection):
        return None
    tags: dict[str, list[str]] = {}
    for tag in dynamic.iter_tags():
        for key in ("needed", "soname", "rpath", "runpath"):
            if hasattr(tag, key):
                tags.setdefault(key, []).append(getattr(tag, key))
    versions: set[tuple[str, str]] = set()
    defines: set[str] = set()
    section = file.get_section_by_name(".gnu.version_r")
    if isinstance(section, GNUVerNeedSection):
        versions = {
            (library.name or "", entry.name)
            for library, entries in section.iter_versions()
            for entry in entries
            if not entry["vna_flags"] & _WEAK
        }
    section = file.get_section_by_name(".gnu.version_d")
    if isinstance(section, GNUVerDefSection):
        defines = {next(entries).name for _, entries in section.iter_versions()}
    return Elf(
        soname="".join(tags.get("soname", [])[:1]),
        needed=tuple(tags.get("needed", [])),
        rpath=_directories(tags.get("rpath", [])),
        runpath=_directories(tags.get("runpath", [])),
        versions=frozenset(versions),
        defines=frozenset(defines),
        machine=file.get_machine_arch(),
    )


def _directories(values: list[str]) -> tuple[str, ...]:
    return tuple(part for value in values for part in value.split(":") if part)


def search(file: ElfSource, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """Search the bytes of a file; a match has at most 1 KiB."""
    kept = b""
    with file.open() as stream:
        while block := stream.read(_BLOCK):
            if found := pattern.search(kept + block):
                return found
            kept = block[-_OVERLAP:]
    return None


def mentions(file: ElfSource, word: bytes) -> bool:
    """Return whether a file contains ``word``; detects a provider that is compiled in."""
    return search(file, re.compile(re.escape(word))) is not None


def highest(versions: Iterable[str], family: str) -> tuple[int, ...]:
    """Return the highest version of one family: (2, 34) for ``GLIBC_2.34``; empty if none."""
    pattern = re.compile(rf"{family}_(?P<number>\d+(?:\.\d+)*)")
    found = [m["number"] for version in versions if (m := pattern.fullmatch(version))]
    return max(map(numbers, found), default=())


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text: (2, 34) for ``2.34``."""
    return tuple(int(part[:_DIGITS]) for part in re.findall(r"[0-9]+", text))


def dotted(version: tuple[int, ...]) -> str:
    """Return ``2.34`` for (2, 34)."""
    return ".".join(map(str, version))
