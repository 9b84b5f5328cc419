# SPDX-License-Identifier: MIT
"""``NCCL_DEBUG`` output of NCCL 2.8 to 2.30 and of RCCL."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from busbar.parse import numbers
from busbar.parse.messages import table

INFO = b"NCCL INFO "
WARN = b"NCCL WARN "
VIA = b" via "


@dataclass(frozen=True)
class Ring:
    """The order of ranks in one channel: ``Channel 00/16 : 0 7 5 ...``."""

    channel: int
    channels: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class NetPath:
    """One end of a connection over the network: ``... -> 8[0] [receive] via NET/IB/1/GDRDMA``."""

    channel: int
    source: int
    target: int
    receives: bool
    """Whether the receiver printed the line, and ``device`` is its NIC; else the sender."""
    network: str
    device: int
    gdr: bool

    @property
    def way(self) -> str:
        """Network and use of GPUDirect, as after ``via`` without the number of the device."""
        return f"NET/{self.network}" + ("/GDRDMA" if self.gdr else "")

    @property
    def connection(self) -> tuple[int, int, int]:
        """What the lines of both ends have in common."""
        return self.channel, self.source, self.target


PROCESS = re.compile(rb"(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,18}):\d+ \[-?\d+\] (?:\S+ )?NCCL ")
"""``host:pid:tid [device]`` before a line."""
_RING = re.compile(
    rb"Channel (?P<channel>\d{1,18})/(?P<channels>\d{1,18}) ?:"
    rb" +(?P<ranks>\d{1,18}(?: +\d{1,18})*)\s*$"
)
_NET = re.compile(
    rb"(?:Channel|Ring) (?P<channel>\d{1,18})(?:/\d+)? : (?P<source>\d{1,18})(?:\[\w+\])?"
    rb" -> (?P<target>\d{1,18})(?:\[\w+\])? \[(?P<end>receive|send)\] via (?:NET|COLLNET)/"
    rb"(?P<network>.+?)/(?P<device>\d{1,18})(?:\(\d{1,18}\))?(?P<gdr>/GDRDMA)?"
)
TABLE = table("nccl")
_LONGEST_HOST = 255
_DOTTED = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}")
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


def parse_ring(message: bytes) -> Ring | None:
    """Parse the ranks of a channel in ring order, which rank 0 prints."""
    line = _RING.match(message)
    if not line:
        return None
    ranks = tuple(numbers.count(rank) for rank in line["ranks"].split())
    return Ring(numbers.count(line["channel"]), numbers.count(line["channels"]), ranks)


def parse_net_path(message: bytes) -> NetPath | None:
    """Parse a connection over the network; None for other connections."""
    line = _NET.match(message)
    if not line:
        return None
    return NetPath(
        channel=numbers.count(line["channel"]),
        source=numbers.count(line["source"]),
        target=numbers.count(line["target"]),
        receives=line["end"] == b"receive",
        network=line["network"].decode("utf-8", "replace"),
        device=numbers.count(line["device"]),
        gdr=bool(line["gdr"]),
    )


def process_start(line: bytes, hosts: Collection[bytes] = ()) -> int:
    """Return where ``host:pid:tid [device] NCCL`` begins; 0 for a line without it.

    A log line can follow a piece of a result row on the same line without a space. The row's last
    number is then glued to the host name, which is cut off if it ends in one of ``hosts``.
    """
    process = PROCESS.search(line)
    if not process:
        return 0
    name = process["host"]
    starts = range(max(0, len(name) - _LONGEST_HOST), len(name))
    host_bytes = next((len(name) - at for at in starts if name[at:] in hosts), 0)
    if host_bytes:
        return process.start() + len(name) - host_bytes
    digits = re.match(rb"-?\d+(?=[A-Za-z])", name)
    return process.start() + (digits.end() if digits else 0)


def version_of(code: str) -> str:
    """Return ``2.28.3`` for itself, for ``22803`` and, as ``2.8.4`` for ``2804``, for old codes.

    Empty for other text.
    """
    if _DOTTED.fullmatch(code):
        return code
    if not numbers.is_whole(code) or len(code) not in (4, 5, 6):
        return ""
    number = numbers.count(code)
    # Versions before 2.9 had three digits for the major version and the minor one.
    major, rest = divmod(number, 10_000 if len(code) > 4 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def algorithm_name(text: str) -> str:
    """Return ``RING`` for ``RING`` and for the index 1 that versions before 2.24 print."""
    return _named(_ALGORITHMS, text)


def protocol_name(text: str) -> str:
    """Return ``SIMPLE`` for ``SIMPLE`` and for the index 2."""
    return _named(_PROTOCOLS, text)


def _named(names: tuple[str, ...], text: str) -> str:
    if numbers.is_whole(text) and numbers.count(text) < len(names):
        return names[numbers.count(text)]
    return text.upper()
