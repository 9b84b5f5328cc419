# SPDX-License-Identifier: MIT
"""Read the errors of GPUs from the kernel log.

Any user can put text into it: the name of a process begins a record, at most 15 characters of it;
the name of a file ends one; amdgpu quotes the name of a process. So a record counts only if it
begins as no process name can, up to the whole address of the device, and nothing that follows the
word process counts. A rule of netfilter, which users write in a network namespace of their own,
can begin a record with 127 characters; its fields give it away. Records of amdgpu count only with
the device that the kernel adds, which text cannot contain. A line feed in a file name begins a
line in the output of ``dmesg``, but not in `/dev/kmsg`, where it is escaped: a record that only
``dmesg`` shows is not certain.
"""

from __future__ import annotations

import os
import re
import subprocess
from bisect import bisect_left
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from busbar.gate.sysfs import number_in
from busbar.parse import numbers

ErrorKind = Literal["xid", "sxid", "amdgpu"]
_HEAD = re.compile(r"\d{1,9},(?P<number>\d+),(?P<us>\d+),[^;]*;")
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
_QUOTED = re.compile(r"(?<=.)\bprocess\b.*", re.IGNORECASE)
"""What amdgpu quotes: ``for process NAME pid 7 thread NAME``, ``Process information: ...``."""
_NETFILTER = re.compile(
    r"IN=\S{0,15} OUT=\S{0,15}"
    r"(?:(?: (?:ARP )?[A-Z]{3,}=\S*){3}| MAC source = |(?: [A-Z]{3,}=\S*){0,2} ?$)"
)
"""Longer than a process name, which an Xid holds, or, of an unknown protocol, at the end."""
_BEGINS = (
    r"(?P<record>(?P<begin>"
    rf"(?:NVRM: Xid|nvidia-nvswitch\d+: SXid) \((?:PCI:)?{_BUS}[^)\n]*\): \d+,"
    rf"|amdgpu (?P<bus>{_BUS}): ).*)"
)
_IN_RECORD = re.compile(rf"\n[0-7],\d+,(?P<us>\d+),[^;\n]*;{_BEGINS}")
"""The records of programs have larger first numbers. Only the begin of each line is searched: ten
megabytes of any text take less than a tenth of a second."""
_IN_LINE = re.compile(rf"\n\[ *(?P<s>\d+\.\d+)\] {_BEGINS}")
_MOST_RECORDS = 5000
"""Records looked at, from the end of the log, that may be a new error. Before more, it is lost."""
_PART, _MOST_LEFT_OUT = 1 << 20, 8
"""What is searched at once, and how many begins of known errors are taken out of it before."""
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
    def key(self) -> tuple[object, ...]:
        """What the same error has again; a fault by a job hides no other one."""
        return (self.kind, self.bus_id, self.code, self.may_be_a_job)

    @property
    def may_be_a_job(self) -> bool:
        """Whether a program of a user can be the reason (amdgpu)."""
        return self.kind == "amdgpu" and JOB_FAULT.search(self.text) is not None


@dataclass(frozen=True)
class KernelLog:
    """The errors in the log, and its missing parts."""

    errors: tuple[KernelError, ...] = ()
    """In the order of the log."""
    lost_until_s: float | None = None
    """Until when after the boot records are missing; None if the log is complete."""
    certain: bool = True
    """Whether only the kernel can have written the errors."""


def read(root: Path) -> KernelLog:
    """Read `dev/kmsg` or, without it, ``dmesg``; raise ``RuntimeError`` without both.

    Errors of devices that are not in `sys` of ``root`` do not belong to this node.
    """
    log = _read(root / "dev/kmsg")
    devices = root / "sys/bus/pci/devices"
    if not devices.is_dir():
        return replace(log, certain=False)
    vendors: dict[str, set[int]] = {}
    for function in devices.iterdir():
        vendors.setdefault(function.name[:-2], set()).add(number_in(function / "vendor"))

    def is_present(error: KernelError) -> bool:
        # The driver may write a domain of eight digits, and no function.
        address = error.bus_id.partition(".")[0][-len("0000:00:00") :]
        return _VENDORS[error.kind] in vendors.get(address, ())

    return replace(log, errors=tuple(filter(is_present, log.errors)))


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
    with open(path, "rb", 0, opener=lambda name, how: os.open(name, how | os.O_NONBLOCK)) as file:
        while True:
            try:
                record = file.read(8192)
            except BrokenPipeError:  # this record was overwritten; the next number shows it
                continue
            if not record:
                break
            records.append(record)
    return b"".join(records).decode(errors="replace")


def parse(text: str) -> KernelLog:
    """Parse records of `/dev/kmsg`, which are numbered from 0 on. Other lines are skipped."""
    # Lines after the first of a record begin with a blank: what the kernel knows of the device.
    text = text.replace("\n ", "\0 ")
    errors, cut_s = _last_of_each(text, _IN_RECORD)
    return KernelLog(errors, _lost_until(text) if cut_s is None else cut_s)


def _last_of_each(
    text: str, begins: re.Pattern[str]
) -> tuple[tuple[KernelError, ...], float | None]:
    """Return each error once, and until when the log was not searched, if there is too much.

    Jobs can repeat an error of theirs, and place texts in records, as often as they like.
    """
    errors: dict[object, KernelError] = {}
    known: set[str] = set()
    left, oldest_s = _MOST_RECORDS, None
    for found in _from_the_end(text, begins, known):
        if found["begin"] in known:
            continue
        if not left:
            return (*reversed(errors.values()),), oldest_s
        left, oldest_s = left - 1, _seconds(found)
        line, *device = found["record"].split("\0")
        wanted = f" DEVICE=+pci:{found['bus']}" if begins is _IN_RECORD and found["bus"] else ""
        forged = (wanted and wanted not in device) or _NETFILTER.search(line)
        error = None if forged else _error(line, oldest_s)
        if error:
            errors.setdefault(error.key, error)
            if not found["bus"]:  # the rest of the line makes no other error of it
                known.add(found["begin"])
    return (*reversed(errors.values()),), None


def _from_the_end(text: str, begins: re.Pattern[str], known: Set[str]) -> Iterator[re.Match[str]]:
    """Yield the records that may be an error, the last first; of many ``known`` ones not all."""
    end = len(text)
    while end > 0:
        start = text.rfind("\n", 0, max(end - _PART, 0))
        part = "\n" + text[start + 1 : end]
        for begin in islice(known, _MOST_LEFT_OUT):
            part = part.replace(begin, "\0")
        yield from reversed([*begins.finditer(part)])
        end = start


def _seconds(head: re.Match[str]) -> float:
    values = head.groupdict()
    return numbers.count(values["us"]) / 1e6 if "us" in values else numbers.real(head["s"]) or 0.0


def _lost_until(text: str) -> float | None:
    last = _HEAD.match(text, text.rfind("\n", 0, -1) + 1)
    if last and numbers.count(last["number"]) + 1 == text.count("\n"):
        return None
    records = [record for record in text.split("\n") if record[:1].isdecimal()]

    def missing(index: int) -> int:
        head = _HEAD.match(records[index])
        return (numbers.count(head["number"]) if head else 0) - index

    if not records or not missing(len(records) - 1):
        return None
    whole_from = bisect_left(range(len(records)), missing(len(records) - 1), key=missing)
    head = _HEAD.match(records[min(whole_from, len(records) - 1)])
    return head and _seconds(head)


def parse_dmesg(text: str) -> KernelLog:
    """Parse the output of ``dmesg``, which is complete if it begins with the boot."""
    errors, cut_s = _last_of_each(text, _IN_LINE)
    first = re.search(r"^\[ *(?P<s>\d+\.\d+)\] ", text, re.MULTILINE)
    return KernelLog(errors, cut_s or (first and _seconds(first)) or None, certain=False)


def _error(text: str, seconds: float) -> KernelError | None:
    text = _QUOTED.sub("", text)
    for kind, pattern in _ERRORS.items():
        if error := pattern.match(text):
            bus, code = error["bus"].lower(), numbers.count(error["code"])
            return KernelError(kind, bus, code, seconds, error["rest"].strip(" ,:")[:_MOST_TEXT])
    return None
