# SPDX-License-Identifier: MIT
"""Parse errors of GPUs in the kernel log: records of `/dev/kmsg`, or lines of ``dmesg``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from busbar.parse import numbers

ErrorKind = Literal["xid", "sxid", "amdgpu"]
_RECORD = re.compile(r"(?P<level>\d{1,4}),\d+,(?P<us>\d+),[^;]*;(?P<text>.*)")
_LINE = re.compile(r"(?:<\d+>)?\[\s*(?P<seconds>\d+\.\d+)\]\s*(?P<text>.*)")
_OF_KERNEL = 8
"""Records below this number are of the kernel; programs write others."""
_ERRORS: dict[ErrorKind, re.Pattern[str]] = {
    "xid": re.compile(
        r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]+)\):? (?P<code>\d{1,4})\b(?P<rest>.*)"
    ),
    "sxid": re.compile(
        r"nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]+)\): (?P<code>\d{1,6}),"
        r" (?P<rest>Fatal.*)"
    ),
    "amdgpu": re.compile(
        r"amdgpu (?P<bus>[0-9a-f:.]+): (?:amdgpu: )?(?P<code>)(?P<rest>.*(?:GPU reset begin"
        r"|GPU reset\(\d+\) failed|GPU recovery failed|page fault|ring \S+ timeout"
        r"|(?<!\b0 )(?<!\b0 new )uncorrectable hardware error|[Ff]atal error|bad state"
        r"|bad page threshold|device lost from bus).*)"
    ),
}
_JOB_FAULT = re.compile(r"page fault|ring \S+ timeout|GPU reset begin")
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
        return self.kind == "amdgpu" and _JOB_FAULT.search(self.text) is not None


def parse_errors(text: str) -> tuple[KernelError, ...]:
    """Return the errors of GPUs, in the order of the log. Other lines are skipped."""
    return tuple(_errors(text))


def _errors(text: str) -> Iterator[KernelError]:
    for line in text.splitlines():
        if "Xid" not in line and "amdgpu" not in line:
            continue
        if record := _RECORD.match(line):
            if numbers.count(record["level"]) >= _OF_KERNEL:
                continue
            seconds = numbers.count(record["us"]) / 1e6
        elif record := _LINE.match(line):
            seconds = numbers.real(record["seconds"]) or 0.0
        else:
            continue
        # A driver's message begins so. The name of a process, which the kernel quotes, does not.
        for kind, pattern in _ERRORS.items():
            if error := pattern.match(record["text"]):
                code = numbers.count(error["code"])
                words = error["rest"].strip(" ,:")[:_MOST_TEXT]
                yield KernelError(kind, error["bus"].lower(), code, seconds, words)
