# SPDX-License-Identifier: MIT
"""What the loader reads of a program or library: its names, its needs, its versions."""

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

_WEAK = 2  # VER_FLG_WEAK: the loader only warns where such a version is not there


@dataclass(frozen=True)
class Elf:
    """The dynamic section of one object."""

    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: frozenset[tuple[str, str]]
    """Symbol versions that others must define: ``libc.so.6`` and ``GLIBC_2.34``."""
    defines: frozenset[str]
    """Symbol versions that it defines."""
    machine: str
    """Of the header: ``x64``, ``AArch64``."""

    @property
    def wants(self) -> frozenset[str]:
        """The versions of :attr:`versions`, whoever defines them."""
        return frozenset(version for _, version in self.versions)


@lru_cache(maxsize=512)
def read(path: Path) -> Elf | None:
    """The facts of one file; None for what is no dynamic ELF object."""
    try:
        with path.open("rb") as stream:
            return _facts(ELFFile(stream))
    except (ELFError, ValueError, KeyError, UnicodeDecodeError, OverflowError):
        return None  # what a damaged file makes of the reader


def _facts(file: ELFFile) -> Elf | None:
    dynamic = file.get_section_by_name(".dynamic")
    if not isinstance(dynamic, DynamicSection):
        return None
    found: dict[str, list[str]] = {}
    for tag in dynamic.iter_tags():
        for key in ("needed", "soname", "rpath", "runpath"):
            if hasattr(tag, key):
                found.setdefault(key, []).append(getattr(tag, key))
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
        soname="".join(found.get("soname", [])[:1]),
        needed=tuple(found.get("needed", [])),
        rpath=_directories(found.get("rpath", [])),
        runpath=_directories(found.get("runpath", [])),
        versions=frozenset(versions),
        defines=frozenset(defines),
        machine=file.get_machine_arch(),
    )


def _directories(values: list[str]) -> tuple[str, ...]:
    return tuple(part for value in values for part in value.split(":") if part)


def mentions(path: Path, word: bytes) -> bool:
    """Whether the bytes of a file hold ``word``: how a provider that is built in shows."""
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(word) >= 0


def highest(versions: frozenset[str], family: str) -> tuple[int, ...]:
    """The highest of ``GLIBC_2.x``-like names of one family as numbers; empty for none."""
    pattern = re.compile(rf"{family}_(?P<number>\d+(?:\.\d+)*)")
    found = [m["number"] for version in versions if (m := pattern.fullmatch(version))]
    return max((tuple(int(part) for part in text.split(".")) for text in found), default=())
