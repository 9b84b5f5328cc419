# SPDX-License-Identifier: MIT
"""The ELF fields that the loader uses: soname, needed libraries, search paths, versions."""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

_WEAK = 2  # VER_FLG_WEAK: the loader only warns if such a version is missing


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

    @property
    def required_versions(self) -> frozenset[str]:
        """The symbol versions of :attr:`versions`, without the libraries."""
        return frozenset(version for _, version in self.versions)


@lru_cache(maxsize=512)
def read(path: Path) -> Elf | None:
    """Read one file; return None if it is not a readable dynamic ELF object."""
    try:
        with path.open("rb") as stream:
            return _dynamic(ELFFile(stream))
    except (ELFError, ValueError, KeyError, UnicodeDecodeError, OverflowError):
        return None  # pyelftools raises any of these on a damaged file


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


def mentions(path: Path, word: bytes) -> bool:
    """Return whether a file contains ``word``; detects a provider that is compiled in."""
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(word) >= 0


def highest(versions: frozenset[str], family: str) -> tuple[int, ...]:
    """Return the highest version of one family: (2, 34) for ``GLIBC_2.34``; empty if none."""
    pattern = re.compile(rf"{family}_(?P<number>\d+(?:\.\d+)*)")
    found = [m["number"] for version in versions if (m := pattern.fullmatch(version))]
    return max(map(numbers, found), default=())


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text: (2, 34) for ``2.34``."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def dotted(version: tuple[int, ...]) -> str:
    """Return ``2.34`` for (2, 34)."""
    return ".".join(map(str, version))
