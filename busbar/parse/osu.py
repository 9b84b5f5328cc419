# SPDX-License-Identifier: MIT
"""OSU micro-benchmarks 5.x to 7.x: banner and table rows of the point-to-point and collective
tests."""

from __future__ import annotations

import re
from dataclasses import dataclass

from busbar.parse import numbers


@dataclass(frozen=True)
class Banner:
    """The title line of a test, as in ``# OSU MPI-CUDA Bandwidth Test v7.4``."""

    test: str
    """Name of the program: ``osu_bw``, ``osu_allreduce``."""
    version: str
    device: str
    """``CUDA``, ``ROCM``, ``OPENACC``...; empty for host buffers on both sides."""
    quantity: str
    """``bw`` in MB/s of 1e6 bytes, or ``latency_us``."""


@dataclass(frozen=True)
class Row:
    """One size of a table."""

    nbytes: int
    value: float
    """In the unit of the table's column."""
    valid: bool | None = None
    """The verdict of ``-c``; None without it."""
    others: tuple[float, ...] = ()
    """The further columns: message rate, smallest and largest latency."""


@dataclass(frozen=True)
class Setting:
    """A line between the title and the table; None for what it does not name."""

    unit: str | None = None
    """Of the first column: ``MB/s`` or ``us``."""
    datatype: str | None = None
    pairs: int | None = None
    window: int | None = None


TRIGGERS = (r"#[ \t]*(?:OSU|Size|Datatype|\[)", "Send Buffer on", "This test requires")
"""Texts in the lines that the functions of this module parse, but for the rows."""
ROW_TRIGGER = r"(?mi:[0-9][ \t]+-?(?:[0-9][0-9.]*|nan|inf)(?:[ \t]+(?:pass|fail))?[ \t]*$)"
"""A row, which looks like much else: for lines that follow a banner."""

_BANNER = re.compile(
    r"#\s*OSU\s+(?P<api>MPI|NCCL|RCCL|xCCL|OSHM|UPC\+?\+?)(?:-(?P<device>[A-Za-z]+))?\s+"
    r"(?P<title>\S.*?)\s+(?:Test\s+)?v(?P<version>\d+(?:\.\d+)+)"
)
_GPU_LIBRARIES = ("NCCL", "RCCL", "xCCL")
_TITLES = {
    "bandwidth": "osu_bw",
    "bi-directional bandwidth": "osu_bibw",
    "latency": "osu_latency",
    "multi latency": "osu_multi_lat",
    "multi-threaded latency": "osu_latency_mt",
    "multi-process latency": "osu_latency_mp",
    "multiple bandwidth / message rate": "osu_mbw_mr",
    "persistent bandwidth": "osu_bw_persistent",
    "persistent latency": "osu_latency_persistent",
    "persistent bi-directional bandwidth": "osu_bibw_persistent",
    "all-to-all personalized exchange latency": "osu_alltoall",
    "all-to-allv personalized exchange latency": "osu_alltoallv",
    "broadcast latency": "osu_bcast",
}
_BUFFERS = re.compile(
    r"#\s*Send Buffer on (?:HOST|DEVICE|MANAGED)[^(]*\((?P<send>\w+)\)"
    r" and Receive Buffer on (?:HOST|DEVICE|MANAGED)[^(]*\((?P<receive>\w+)\)"
)
_ROW = re.compile(
    r"\s*(?P<nbytes>\d{1,18})(?P<values>(?:\s+(?:\d+(?:\.\d+)?|-\d+\.\d+|-?(?:nan|inf))){1,12})"
    r"(?:\s+(?P<check>Pass|Fail))?\s*$",
    re.IGNORECASE,
)
_SETTINGS = (
    re.compile(r"#\s*Size\b.*?(?:\s|\()(?P<unit>[A-Za-z]{0,5}[Bb]\w{0,4}/s\w*|[mnpu]?s|sec)\b"),
    re.compile(r"#\s*Datatype:\s*(?P<datatype>\w+)"),
    re.compile(
        r"#\s*\[\s*pairs:\s*(?P<pairs>\d{1,9})\s*\]\s*\[\s*window size:\s*(?P<window>\d{1,9})\s*\]"
    ),
)
_WRONG_RANKS = re.compile(r"This test requires (?:exactly|at least) (?P<ranks>\w+) processes")


def parse_banner(line: str) -> Banner | None:
    """The title of a test, or None for any other line."""
    match = _BANNER.match(line)
    if not match:
        return None
    title = re.sub(r"\s+test$", "", match["title"].strip().lower())
    test = _TITLES.get(title)
    if test is None:
        test = "osu_" + re.sub(r"\W+", "_", title.removesuffix(" latency")).strip("_")
    if match["api"] in _GPU_LIBRARIES:
        test = test.replace("osu_", "osu_xccl_", 1)
    rate = "bandwidth" in title
    return Banner(test, match["version"], match["device"] or "", "bw" if rate else "latency_us")


def parse_buffers(line: str) -> str | None:
    """``D D`` and the like from the line that 5.x to 7.3 print under the title."""
    match = _BUFFERS.match(line)
    return f"{match['send']} {match['receive']}" if match else None


def parse_row(line: str) -> Row | None:
    """A row of a table; the first value is the average or the bandwidth."""
    row = _ROW.match(line)
    if not row:
        return None
    valid = row["check"].lower() == "pass" if row["check"] else None
    first, *others = (numbers.real(word) for word in row["values"].split())
    known = tuple(other for other in others if other is not None)
    return None if first is None else Row(numbers.count(row["nbytes"]), first, valid, known)


def parse_setting(line: str) -> Setting | None:
    """The units of the table, the type, or the number of pairs; None for any other line."""
    for pattern in _SETTINGS:
        if match := pattern.match(line):
            found = match.groupdict()
            return Setting(
                found.get("unit"),
                found.get("datatype"),
                numbers.count(found["pairs"]) if "pairs" in found else None,
                numbers.count(found["window"]) if "window" in found else None,
            )
    return None


def parse_rank_complaint(line: str) -> str | None:
    """How many processes a test says it needs, when it was started with another number."""
    complaint = _WRONG_RANKS.search(line)
    return complaint["ranks"] if complaint else None
