# SPDX-License-Identifier: MIT
"""``NCCL_DEBUG`` output of NCCL 2.8 to 2.30 and of RCCL."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from busbar.parse.messages import Message, Pattern, match, pattern

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
    """Which end speaks: the receiver's or the sender's device is named."""
    network: str
    device: int
    proxy_rank: int | None
    """The rank whose NIC is used when it is not the rank's own (PXN)."""
    gdr: bool


@dataclass(frozen=True)
class Process:
    """``host:pid:tid [device]`` before a line."""

    host: str
    pid: int


_PROCESS = re.compile(rb"([\w.-]{1,255}):(\d{1,18}):\d+ \[(-?\d+)\] (?:\S+ )?NCCL ")
_RING = re.compile(rb"Channel (\d{1,18})/(\d{1,18}) ?: +(\d{1,18}(?: +\d{1,18})*)\s*$")
_NET = re.compile(
    rb"(?:Channel|Ring) (\d{1,18})(?:/\d+)? : (\d{1,18})(?:\[\w+\])? -> (\d{1,18})(?:\[\w+\])?"
    rb" \[(receive|send)\]"
    rb" via (?:NET|COLLNET)/(.+?)/(\d{1,18})(?:\((\d{1,18})\))?(/GDRDMA)?"
)
_ENVIRONMENT = (
    r"^((?:NCCL|RCCL|MSCCLPP|TORCH_NCCL|NPKIT|OFI)_?\w*) set by environment to (.*?)\.?\s*$"
)
_INIT = r"comm 0x\w+ rank (\d{1,18}) n[rR]anks (\d{1,18})(?: cudaDev (\d{1,18}))?"

_TABLE = (
    pattern("nccl.env", " set by environment to", _ENVIRONMENT),
    pattern("nccl.version", "CCL version", r"^[NR]CCL version\s*:?\s*(\d+\.\d+\.\d+)(?:\+(\S+))?"),
    pattern("nccl.init", " rank ", _INIT),
    pattern(
        "nccl.nodes",
        " nNodes ",
        r"rank (\d{1,18}) nRanks (\d{1,18}) nNodes (\d{1,18}) localRanks (\d{1,18})",
    ),
    pattern("nccl.complete", "Init COMPLETE"),
    pattern(
        "nccl.channels",
        " coll channels",
        r"^(\d{1,18}) coll channels.*?(?:(\d{1,18}) p2p channels,? (\d{1,18}) p2p channels per"
        r" peer)?\s*$",
    ),
    pattern("nccl.nvlink", "NVL[", r"NVL\[(\d{1,18}(?:\.\d+)?)\] -"),
    pattern("nccl.chunk", "P2P Chunksize", r"^P2P Chunksize set to (\d{1,18})"),
    pattern("nccl.network", "Using network", r"^Using network (.*\S)"),
    pattern("nccl.network", "Assigned NET plugin", r"^Assigned NET plugin (.*\S) to comm"),
    pattern(
        "nccl.no-plugin",
        "libnccl-net",
        r"NET/Plugin ?: (?:Could not find:?|No plugin found \(?) ?(lib[nr]ccl-net\S*?\.so)",
    ),
    pattern(
        "nccl.no-plugin",
        "librccl-net",
        r"NET/Plugin ?: (?:Could not find:?|No plugin found \(?) ?(lib[nr]ccl-net\S*?\.so)",
    ),
    pattern("nccl.plugin-failed", "Plugin load", r"NET/Plugin ?: (Plugin load .*\S)"),
    pattern("nccl.ib-none", "NET/IB : No device found", r"NET/IB : No device found"),
    pattern("nccl.ib-devices", "NET/IB : Using", r"NET/IB : Using ((?:\[\d+\]\S+ ?)+)"),
    pattern(
        "nccl.gdr-hca",
        "GPU Direct RDMA",
        r"NET/(.+?) ?: GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,18}) '([^']+)'",
    ),
    pattern(
        "nccl.gdr-gpu",
        "GPU Direct RDMA",
        r"^GPU Direct RDMA (Enabled|Disabled) for GPU (\w+) / HCA (\w+) \(distance (\d{1,18})",
    ),
    pattern(
        "nccl.p2p-disabled",
        "P2P is disabled between",
        r"P2P is disabled between (?:NVLINK )?connected GPUs (\d{1,18}) and (\d{1,18})",
    ),
    pattern("nccl.p2p-failed", "Could not enable P2P", r"Could not enable P2P between (.*)"),
    pattern("nccl.config", "Comm config", r"^Comm config (\w+) (?:re)?set to (\S+)"),
    pattern(
        "nccl.affinity",
        "ffinity for GPU",
        r"Affinity for GPU (\d{1,18}) is .*?\(GPU affinity = ?(.*?) ?; CPU affinity = ?(.*?) ?\)",
    ),
    pattern(
        "nccl.algorithm",
        "Bytes -> Algo",
        r"^(?:(\w+): )?(\d{1,18}) Bytes -> Algo (\w+) proto (\w+)"
        r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,18})\.\.(\d{1,18})\})?",
    ),
    pattern(
        "nccl.no-algorithm",
        "no algorithm/protocol available",
        r"(no algorithm/protocol available.*\S)",
    ),
    pattern(
        "nccl.affinity-set",
        "Setting affinity for GPU",
        r"^Setting affinity for GPU (\d{1,18}) to ([0-9a-fA-F,-]+)",
    ),
    pattern("nccl.threads", "Max NThreads", r"Max NThreads \|((?:\s+\d+ \|)+)"),
    pattern(
        "nccl.duplicate",
        "Duplicate GPU",
        r"Duplicate GPU detected : rank (\d{1,18}) and rank (\d{1,18}) both on CUDA device (\w+)",
    ),
    pattern(
        "nccl.mismatch",
        "Mismatched NCCL",
        r"Mismatched NCCL version detected : rank (\d{1,18}) version (\d{1,18}) rank (\d{1,18})"
        r" version (\d{1,18})",
    ),
    pattern(
        "rccl.mscclpp-on", "MSCCL++: Enabled", r"MSCCL\+\+: Enabled! Msg size threshold=(\d{1,18})"
    ),
    pattern(
        "rccl.mscclpp-off", "MSCCL++: ", r"MSCCL\+\+: ((?:Cannot enable|Feature not enabled).*)"
    ),
    pattern("rccl.msccl-off", "disabling MSCCL", r"(so disabling MSCCL for .*)"),
    pattern("rccl.msccl-off", "MSCCL Internal Scheduler", r"(Unable to find algorithm files.*)"),
)

_OPERATIONS = ("AllR", "AllG", "AllT", "Redu", "Broa", "Send", "Recv", "Gath", "Scat")
# How messages of a kind begin, by their first four bytes; kinds that are not here are warnings.
_HEADS = {
    "nccl.env": ("NCCL", "RCCL", "MSCC", "TORC", "NPKI", "OFI_"),
    "nccl.version": ("NCCL", "RCCL"),
    "nccl.init": ("comm", "nccl"),
    "nccl.nodes": ("comm",),
    "nccl.complete": ("comm", "nccl"),
    "nccl.channels": tuple("0123456789"),
    "nccl.nvlink": ("    ",),
    "nccl.chunk": ("P2P ",),
    "nccl.network": ("Usin", "Assi"),
    "nccl.no-plugin": ("NET/",),
    "nccl.plugin-failed": ("NET/",),
    "nccl.ib-none": ("NET/",),
    "nccl.ib-devices": ("NET/",),
    "nccl.gdr-hca": ("NET/",),
    "nccl.gdr-gpu": ("GPU ",),
    "nccl.p2p-disabled": ("P2P ",),
    "nccl.p2p-failed": ("Coul",),
    "nccl.config": ("Comm",),
    "nccl.affinity": ("nccl", "Affi"),
    "nccl.affinity-set": ("Sett",),
    "nccl.algorithm": (*_OPERATIONS, *"0123456789"),
    "nccl.threads": (" Max",),
    "rccl.mscclpp-on": ("MSCC",),
    "rccl.mscclpp-off": ("MSCC",),
}


def _by_head() -> dict[bytes, tuple[Pattern, ...]]:
    grouped: dict[bytes, tuple[Pattern, ...]] = {}
    for row in _TABLE:
        for head in _HEADS.get(row.kind, ()):
            grouped[head.encode()] = (*grouped.get(head.encode(), ()), row)
    return grouped


_PATTERNS_BY_HEAD = _by_head()
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


def candidates(line: bytes, start: int) -> tuple[Pattern, ...]:
    """The patterns that the message at ``start`` can match, by how it begins.

    This is the filter for logs of hundreds of megabytes: two slices and two looks into a table.
    """
    by_head = _PATTERNS_BY_HEAD
    return by_head.get(line[start : start + 4]) or by_head.get(line[start : start + 1], ())


def parse(message: bytes, table: tuple[Pattern, ...] = _TABLE) -> list[Message]:
    """What a line says after ``NCCL INFO`` or ``NCCL WARN``."""
    return list(match(table, message))


def parse_ring(message: bytes) -> Ring | None:
    """The ranks of a channel in ring order; rank 0 prints them."""
    found = _RING.match(message)
    if not found:
        return None
    ranks = tuple(int(r) for r in found[3].split())
    return Ring(int(found[1]), int(found[2]), ranks)


def parse_net_path(message: bytes) -> NetPath | None:
    """A connection over the network, None for the others."""
    found = _NET.match(message)
    if not found:
        return None
    return NetPath(
        channel=int(found[1]),
        source=int(found[2]),
        target=int(found[3]),
        receives=found[4] == b"receive",
        network=found[5].decode("utf-8", "replace"),
        device=int(found[6]),
        proxy_rank=int(found[7]) if found[7] else None,
        gdr=bool(found[8]),
    )


def process_start(line: bytes, hosts: Collection[bytes] = ()) -> int:
    """Where ``host:pid:tid [device] NCCL`` begins; 0 for a line without it.

    A log line can follow a piece of a result row on the same line without a space. The row's last
    number then runs into the host's name: ``hosts`` are the names that are known to end it.
    """
    found = _PROCESS.search(line)
    if not found:
        return 0
    name = found[1]
    known = max((len(host) for host in hosts if name.endswith(host)), default=0)
    if known:
        return found.start() + len(name) - known
    digits = re.match(rb"-?\d+(?=[A-Za-z])", name)
    return found.start() + (digits.end() if digits else 0)


def parse_process(line: bytes) -> Process | None:
    """Who printed a line that begins with the process."""
    found = _PROCESS.match(line)
    return Process(found[1].decode("utf-8", "replace"), int(found[2])) if found else None


def algorithm_name(text: str) -> str:
    """``RING`` for ``RING`` and for the index 1 that versions before 2.24 print."""
    return _named(_ALGORITHMS, text)


def protocol_name(text: str) -> str:
    """``SIMPLE`` for ``SIMPLE`` and for the index 2."""
    return _named(_PROTOCOLS, text)


def _named(names: tuple[str, ...], text: str) -> str:
    if text.isdigit() and int(text) < len(names):
        return names[int(text)]
    return text.upper()
