# SPDX-License-Identifier: MIT
"""``NCCL_DEBUG`` output of NCCL 2.8 to 2.30 and of RCCL."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from busbar.parse.messages import Pattern, pattern

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
    proxy_rank: int | None
    """The rank whose NIC is used when it is not the rank's own (PXN)."""
    gdr: bool


@dataclass(frozen=True)
class Process:
    """``host:pid:tid [device]`` before a line."""

    host: str
    pid: int


_PROCESS = re.compile(rb"(?P<host>[\w.-]{1,255}):(?P<pid>\d{1,18}):\d+ \[-?\d+\] (?:\S+ )?NCCL ")
_RING = re.compile(
    rb"Channel (?P<channel>\d{1,18})/(?P<channels>\d{1,18}) ?:"
    rb" +(?P<ranks>\d{1,18}(?: +\d{1,18})*)\s*$"
)
_NET = re.compile(
    rb"(?:Channel|Ring) (?P<channel>\d{1,18})(?:/\d+)? : (?P<source>\d{1,18})(?:\[\w+\])?"
    rb" -> (?P<target>\d{1,18})(?:\[\w+\])? \[(?P<end>receive|send)\] via (?:NET|COLLNET)/"
    rb"(?P<network>.+?)/(?P<device>\d{1,18})(?:\((?P<proxy>\d{1,18})\))?(?P<gdr>/GDRDMA)?"
)
_ENVIRONMENT = (
    r"^(?P<name>(?:NCCL|RCCL|MSCCLPP|TORCH_NCCL|NPKIT|OFI)_?\w*) set by environment to"
    r" (?P<value>.*?)\.?\s*$"
)
_NO_PLUGIN = (
    r"NET/Plugin ?: (?:Could not find:?|No plugin found \(?) ?(?P<library>lib[nr]ccl-net\S*?\.so)"
)
_DIGITS = tuple("0123456789")
_OPERATIONS = ("AllR", "AllG", "AllT", "Redu", "Broa", "Send", "Recv", "Gath", "Scat")

TABLE: tuple[Pattern, ...] = (
    pattern(
        "nccl.env",
        " set by environment to",
        _ENVIRONMENT,
        info=("NCCL", "RCCL", "MSCC", "TORC", "NPKI", "OFI_"),
    ),
    pattern(
        "nccl.version",
        "CCL version",
        r"^[NR]CCL version\s*:?\s*(?P<version>\d+\.\d+\.\d+)(?:\+(?P<build>\S+))?",
        info=("NCCL", "RCCL"),
    ),
    pattern(
        "nccl.init",
        " rank ",
        r"comm 0x\w+ rank (?P<rank>\d{1,18}) n[rR]anks (?P<ranks>\d{1,18})"
        r"(?: cudaDev (?P<device>\d{1,18}))?",
        info=("comm", "nccl"),
    ),
    pattern(
        "nccl.nodes",
        " nNodes ",
        r"rank (?P<rank>\d{1,18}) nRanks (?P<ranks>\d{1,18}) nNodes (?P<nodes>\d{1,18})"
        r" localRanks \d{1,18}",
        info=("comm",),
    ),
    pattern("nccl.complete", "Init COMPLETE", info=("comm", "nccl")),
    pattern(
        "nccl.channels",
        " coll channels",
        r"^(?P<channels>\d{1,18}) coll channels",
        info=_DIGITS,
    ),
    pattern(
        "nccl.nvlink",
        "NVL[",
        r"NVL\[(?P<gb_per_s>\d{1,18}(?:\.\d+)?)\] -",
        info=("    ",),
    ),
    pattern(
        "nccl.chunk",
        "P2P Chunksize",
        r"^P2P Chunksize set to (?P<nbytes>\d{1,18})",
        info=("P2P ",),
    ),
    pattern("nccl.network", "Using network", r"^Using network (?P<name>.*\S)", info=("Usin",)),
    pattern(
        "nccl.network",
        "Assigned NET plugin",
        r"^Assigned NET plugin (?P<name>.*\S) to comm",
        info=("Assi",),
    ),
    pattern("nccl.no-plugin", "libnccl-net", _NO_PLUGIN, info=("NET/",)),
    pattern("nccl.no-plugin", "librccl-net", _NO_PLUGIN, info=("NET/",)),
    pattern(
        "nccl.plugin-failed",
        "Plugin load",
        r"NET/Plugin ?: (?P<text>Plugin load .*\S)",
        info=("NET/",),
    ),
    pattern("nccl.ib-none", "NET/IB : No device found", info=("NET/",)),
    pattern(
        "nccl.ib-devices",
        "NET/IB : Using",
        r"NET/IB : Using (?P<devices>(?:\[\d+\]\S+ ?)+)",
        info=("NET/",),
    ),
    pattern(
        "nccl.gdr-hca",
        "GPU Direct RDMA",
        r"NET/(?P<network>.+?) ?: GPU Direct RDMA (?P<state>Enabled|Disabled) for HCA \d{1,18}"
        r" '(?P<nic>[^']+)'",
        info=("NET/",),
    ),
    pattern(
        "nccl.gdr-gpu",
        "GPU Direct RDMA",
        r"^GPU Direct RDMA (?P<state>Enabled|Disabled) for GPU (?P<gpu>\w+) / HCA (?P<nic>\w+)"
        r" \(distance \d{1,18}",
        info=("GPU ",),
    ),
    pattern(
        "nccl.p2p-disabled",
        "P2P is disabled between",
        r"P2P is disabled between (?:NVLINK )?connected GPUs (?P<first>\d{1,18})"
        r" and (?P<second>\d{1,18})",
        info=("P2P ",),
    ),
    pattern(
        "nccl.p2p-failed",
        "Could not enable P2P",
        r"Could not enable P2P between (?P<text>.*)",
        info=("Coul",),
    ),
    pattern(
        "nccl.config",
        "Comm config",
        r"^Comm config (?P<name>\w+) (?:re)?set to (?P<value>\S+)",
        info=("Comm",),
    ),
    pattern(
        "nccl.affinity",
        "ffinity for GPU",
        r"Affinity for GPU (?P<gpu>\d{1,18}) is .*?\(GPU affinity = ?(?P<near>.*?) ?;"
        r" CPU affinity = ?(?P<cpus>.*?) ?\)",
        info=("nccl", "Affi"),
    ),
    pattern(
        "nccl.affinity-set",
        "Setting affinity for GPU",
        r"^Setting affinity for GPU (?P<gpu>\d{1,18}) to (?P<cpus>[0-9a-fA-F,-]+)",
        info=("Sett",),
    ),
    pattern(
        "nccl.algorithm",
        "Bytes -> Algo",
        r"^(?:(?P<operation>\w+): )?(?P<nbytes>\d{1,18}) Bytes -> Algo (?P<algorithm>\w+)"
        r" proto (?P<protocol>\w+)"
        r"(?: channel\{Lo\.\.Hi\}=\{(?P<channels>\d{1,18}\.\.\d{1,18})\})?",
        info=(*_OPERATIONS, *_DIGITS),
    ),
    pattern(
        "nccl.threads",
        "Max NThreads",
        r"Max NThreads \|(?P<threads>(?:\s+\d+ \|)+)",
        info=(" Max",),
    ),
    pattern(
        "rccl.mscclpp-on",
        "MSCCL++: Enabled",
        r"MSCCL\+\+: Enabled! Msg size threshold=(?P<threshold>\d{1,18})",
        info=("MSCC",),
    ),
    pattern(
        "rccl.mscclpp-off",
        "MSCCL++: ",
        r"MSCCL\+\+: (?P<text>(?:Cannot enable|Feature not enabled).*)",
        info=("MSCC",),
    ),
    # NCCL and RCCL print these as warnings only.
    pattern(
        "nccl.no-algorithm",
        "no algorithm/protocol available",
        r"(?P<text>no algorithm/protocol available.*\S)",
    ),
    pattern("rccl.msccl-off", "disabling MSCCL", r"(?P<text>so disabling MSCCL for .*)"),
    pattern(
        "rccl.msccl-off",
        "MSCCL Internal Scheduler",
        r"(?P<text>Unable to find algorithm files.*)",
    ),
)
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


def parse_ring(message: bytes) -> Ring | None:
    """Parse the ranks of a channel in ring order, which rank 0 prints."""
    line = _RING.match(message)
    if not line:
        return None
    ranks = tuple(int(rank) for rank in line["ranks"].split())
    return Ring(int(line["channel"]), int(line["channels"]), ranks)


def parse_net_path(message: bytes) -> NetPath | None:
    """Parse a connection over the network; None for other connections."""
    line = _NET.match(message)
    if not line:
        return None
    return NetPath(
        channel=int(line["channel"]),
        source=int(line["source"]),
        target=int(line["target"]),
        receives=line["end"] == b"receive",
        network=line["network"].decode("utf-8", "replace"),
        device=int(line["device"]),
        proxy_rank=int(line["proxy"]) if line["proxy"] else None,
        gdr=bool(line["gdr"]),
    )


def process_start(line: bytes, hosts: Collection[bytes] = ()) -> int:
    """Return where ``host:pid:tid [device] NCCL`` begins; 0 for a line without it.

    A log line can follow a piece of a result row on the same line without a space. The row's last
    number is then glued to the host name, which is cut off if it ends in one of ``hosts``.
    """
    process = _PROCESS.search(line)
    if not process:
        return 0
    name = process["host"]
    host_bytes = max((len(host) for host in hosts if name.endswith(host)), default=0)
    if host_bytes:
        return process.start() + len(name) - host_bytes
    digits = re.match(rb"-?\d+(?=[A-Za-z])", name)
    return process.start() + (digits.end() if digits else 0)


def parse_process(line: bytes) -> Process | None:
    """Parse the process that printed a line."""
    process = _PROCESS.match(line)
    if not process:
        return None
    return Process(process["host"].decode("utf-8", "replace"), int(process["pid"]))


def algorithm_name(text: str) -> str:
    """Return ``RING`` for ``RING`` and for the index 1 that versions before 2.24 print."""
    return _named(_ALGORITHMS, text)


def protocol_name(text: str) -> str:
    """Return ``SIMPLE`` for ``SIMPLE`` and for the index 2."""
    return _named(_PROTOCOLS, text)


def _named(names: tuple[str, ...], text: str) -> str:
    if text.isdigit() and int(text) < len(names):
        return names[int(text)]
    return text.upper()
