# SPDX-License-Identifier: MIT
"""Read the errors of GPUs from the kernel log.

Any user can put text into it: the name of a process begins a record, at most 15 characters of it;
the name of a file ends one; amdgpu quotes the name of a process. So a record counts only if it
begins as no process name can, up to the whole address of the device, and nothing that follows the
word process counts. A rule of netfilter, which users write in a network namespace of their own,
can begin a record with 127 characters: its fields betray it. Those of amdgpu count only with the
device that the kernel adds, which no text can hold. A line feed in a file name begins a line in
the output of ``dmesg``, but not in `/dev/kmsg`, where it is escaped: what only ``dmesg`` shows is
not certain.
"""

from __future__ import annotations

import os
import re
import subprocess
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from busbar.gate.sysfs import number_in
from busbar.parse import numbers

ErrorKind = Literal["xid", "sxid", "amdgpu"]
_HEAD = re.compile(r"(?P<level>\d{1,9}),(?P<number>\d+),(?P<us>\d+),[^;]*;")
_LINE = re.compile(r"\[\s*(?P<seconds>\d+\.\d+)\] (?P<text>.*)")
_OF_KERNEL = 8
"""Records below this number are of the kernel; programs write others."""
_BUS = r"(?:[0-9A-Fa-f]{4}){1,2}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?"
_ERRORS: dict[ErrorKind, re.Pattern[str]] = {
    "xid": re.compile(
        rf"NVRM: Xid \((?:PCI:)?(?P<bus>{_BUS})(?: GPU-I:\w+)?\): (?P<code>\d{{1,4}}),"
        r"(?P<rest>.*)"
    ),
    "sxid": re.compile(
        rf"nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<bus>{_BUS})\): (?P<code>\d{{1,6}}),"
        r" (?P<rest>Fatal.*)"
    ),
    "amdgpu": re.compile(
        rf"amdgpu (?P<bus>{_BUS}): (?:amdgpu: )?(?P<code>)(?P<rest>.*(?:GPU reset begin"
        r"|GPU reset\(\d+\) failed|GPU recovery failed|page fault|ring \S+ timeout"
        r"|(?<!\b0 )(?<!\b0 new )uncorrectable hardware error|[Ff]atal error|bad state"
        r"|bad page threshold|device lost from bus).*)"
    ),
}
_BEGINNINGS: dict[str, ErrorKind] = {
    "NVRM: Xid": "xid",
    "nvidia-nvswitch": "sxid",
    "amdgpu ": "amdgpu",
}
_QUOTED = re.compile(r"(?<=.)\bprocess\b.*", re.IGNORECASE)
"""What amdgpu quotes: ``for process NAME pid 7 thread NAME``, ``Process information: ...``."""
_BEGINS = re.compile(
    rf";(?P<driver>NVRM|nvidia-nvswitch\d+|amdgpu)"
    rf"(?: |: S?Xid \()(?:PCI:)?(?P<bus>{_BUS})"
)
"""Passes over ten megabytes of other records in a tenth of a second: a prolog waits for it."""
_NETFILTER = re.compile(r"IN=\S{0,15} OUT=\S{0,15}(?: (?:ARP )?[A-Z]{3,}=\S*){3}")
"""Longer than a process name, which an Xid holds."""
_VENDORS: dict[ErrorKind, int] = {"xid": 0x10DE, "sxid": 0x10DE, "amdgpu": 0x1002}
JOB_FAULT = re.compile(r"page fault|ring \S+ timeout|GPU reset begin")
_MOST_TEXT = 160


@dataclass(frozen=True)
class KernelError:
    """One message of a GPU's driver."""

    kind: ErrorKind
    bus_id: str
    """As the kernel prints it, in lower case."""
    code: int
    """0 for amdgpu, whose messages have no number."""
    seconds: float
    """After the boot."""
    text: str

    @property
    def may_be_a_job(self) -> bool:
        """Whether a program of a user can be the reason (amdgpu)."""
        return self.kind == "amdgpu" and JOB_FAULT.search(self.text) is not None


@dataclass(frozen=True)
class KernelLog:
    """The errors in the log, and what is missing of it."""

    errors: tuple[KernelError, ...] = ()
    """In the order of the log."""
    lost_until_s: float | None = None
    """Until when after the boot records are missing; None if the log is whole."""
    certain: bool = True
    """Whether only the kernel can have written the errors."""


def read(root: Path) -> KernelLog:
    """Read `dev/kmsg` or, without it, ``dmesg``; raise ``RuntimeError`` without both.

    Errors of devices that are not in `sys` of ``root`` are no errors of this node.
    """
    log = _read(root / "dev/kmsg")
    devices = root / "sys/bus/pci/devices"
    if not devices.is_dir():
        return replace(log, certain=False)
    places = {(error.kind, error.bus_id) for error in log.errors}
    here = {place for place in places if _is_present(*place, devices)}
    return replace(log, errors=tuple(e for e in log.errors if (e.kind, e.bus_id) in here))


def _is_present(kind: ErrorKind, bus_id: str, devices: Path) -> bool:
    # The driver may write a domain of eight digits, and no function.
    address = bus_id.partition(".")[0][-len("0000:00:00") :]
    vendors = (number_in(device / "vendor") for device in devices.glob(f"{address}.*"))
    return _VENDORS[kind] in vendors


def _read(path: Path) -> KernelLog:
    try:
        return parse(_records(path))
    except OSError as error:
        try:
            done = subprocess.run(["dmesg"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            why = os.strerror(error.errno) if error.errno else str(error)
            raise RuntimeError(f"the kernel log cannot be read: {why}") from error
        return parse_dmesg(done.stdout.decode(errors="replace"))


def _records(path: Path) -> str:
    """Read the records that are there; a read returns one, and then has to wait for the next."""
    records = []
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(descriptor, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # this record was overwritten; the next number shows it
                continue
            if not record:
                break
            records.append(record)
    finally:
        os.close(descriptor)
    return b"".join(records).decode(errors="replace")


def parse(text: str) -> KernelLog:
    """Parse records of `/dev/kmsg`, which are numbered from 0 on. Other lines are skipped."""
    # Lines after the first of a record begin with a blank: what the kernel knows of the device.
    text = text.replace("\n ", "\0 ")
    errors: list[KernelError] = []
    for found in _BEGINS.finditer(text):
        start = text.rfind("\n", 0, found.start()) + 1
        head = _HEAD.fullmatch(text, start, found.start() + 1)
        if head and numbers.count(head["level"]) < _OF_KERNEL:
            end = text.find("\n", start)
            line, *known = text[start : end if end >= 0 else None].split("\0")
            if found["driver"] != "amdgpu" or f" DEVICE=+pci:{found['bus']}" in known:
                errors += _errors(line.partition(";")[2], _seconds(line))
    records = [record for record in text.split("\n") if record[:1].isdecimal()]
    return KernelLog(tuple(errors), _lost_until(records))


def _seconds(record: str) -> float:
    head = _HEAD.match(record)
    return numbers.count(head["us"]) / 1e6 if head else 0.0


def _lost_until(records: Sequence[str]) -> float | None:
    def missing(index: int) -> int:
        head = _HEAD.match(records[index])
        return (numbers.count(head["number"]) if head else 0) - index

    if not records or not missing(len(records) - 1):
        return None
    whole_from = bisect_left(range(len(records)), missing(len(records) - 1), key=missing)
    return _seconds(records[min(whole_from, len(records) - 1)])


def parse_dmesg(text: str) -> KernelLog:
    """Parse the output of ``dmesg``, which is whole if it begins with the boot."""
    errors: list[KernelError] = []
    first: float | None = None
    for line in text.split("\n"):
        if record := _LINE.fullmatch(line):
            seconds = numbers.real(record["seconds"]) or 0.0
            first = seconds if first is None else first
            errors += _errors(record["text"], seconds)
    return KernelLog(tuple(errors), first or None, certain=False)


def _errors(text: str, seconds: float) -> Iterator[KernelError]:
    kind = next((kind for begin, kind in _BEGINNINGS.items() if text.startswith(begin)), None)
    if not kind or _NETFILTER.search(text):
        return
    if error := _ERRORS[kind].match(_QUOTED.sub("", text)):
        words = error["rest"].strip(" ,:")[:_MOST_TEXT]
        code = numbers.count(error["code"])
        yield KernelError(kind, error["bus"].lower(), code, seconds, words)
