# SPDX-License-Identifier: MIT
"""What a network error is about: the interface that was taken, the two ends of a connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence

Subject = Literal["interface", "endpoints"]


class Named(NamedTuple):
    """A part of a summary, and the line that shows it."""

    text: str = ""
    evidence: tuple[Evidence, ...] = ()


# ---- the interface
_SETTINGS = (
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_oob_tcp_if_include",
    "PRTE_MCA_prte_if_include",
    "UCX_NET_DEVICES",
    "FI_TCP_IFACE",
    "MPIR_CVAR_CH4_OFI_IFNAME",
    "HYDRA_IFACE",
)
_LOCAL = "the loopback, which reaches no other node"
_DOCKER = "a bridge of Docker, which reaches no other node"
_LIBVIRT = "a bridge for virtual machines, which reaches no other node"
_VPN = "a tunnel of a VPN, which other nodes may not be part of"
_POD = "part of a pod network, which reaches pods only"
_KINDS = {
    r"lo\d*": _LOCAL,
    r"docker\w*|br-[0-9a-f]{12}|podman\d+": _DOCKER,
    r"virbr\d+\S*|vmnet\d+|vboxnet\d+|lxcbr\d+|lxdbr\d+": _LIBVIRT,
    r"tun\d+|tap\d+|wg\d+|ppp\d+|utun\d+|tailscale\d+|zt\w{8,}|ipsec\d+|vpn\w*": _VPN,
    r"cni\d+|flannel\S*|cali\w+|cilium_\w+|lxc[0-9a-f]{8,}|vxlan\S*|tunl\d+|weave\w*|kube-\S+"
    r"|nodelocaldns|veth\w+": _POD,
}
_KIND_OF_NAME = [(re.compile(names), kind) for names, kind in _KINDS.items()]
_ODD_NAME = re.compile(rf"(?<![\w.:/@-])(?P<name>{'|'.join(_KINDS)})(?![\w.-])")
_NETWORKS = (
    (re.compile(r"(?<![\d.])(?P<address>127(?:\.\d{1,3}){3})(?![\d.])"), _LOCAL),
    (re.compile(r"(?<![\d.])(?P<address>172\.17(?:\.\d{1,3}){2})(?![\d.])"), _DOCKER),
    (re.compile(r"(?<![\d.])(?P<address>192\.168\.122\.\d{1,3})(?![\d.])"), _LIBVIRT),
)
"""Networks that have the same addresses on each node unless somebody changed them."""


def _kind(name: str) -> str:
    return next((kind for names, kind in _KIND_OF_NAME if names.fullmatch(name)), "")


def _taken(facts: JobOutput) -> Iterator[tuple[str, str, Evidence]]:
    """Yield name, address and line of each interface that a library says it takes."""
    for seen in (*facts.seen("nccl.bootstrap"), *facts.seen("nccl.socket")):
        yield seen["interface"], seen["address"], seen.evidence
    for setting in map(facts.setting, _SETTINGS):
        if setting and not setting.value.startswith("^"):
            yield setting.value.lstrip("=").split(",")[0], "", setting.evidence


def interface(facts: JobOutput, lines: Iterable[Evidence]) -> Named:
    """Name the interface that was taken, the first one that other nodes do not reach."""
    taken = [
        (name, f"{name} ({address})" if address else name, line)
        for name, address, line in _taken(facts)
    ]
    for name, where, line in taken:
        if kind := _kind(name):
            return Named(f"{where} is {kind}", (line,))
    for line in lines:
        if odd := _ODD_NAME.search(line.text):
            return Named(f"{odd['name']} is {_kind(odd['name'])}", (line,))
        for network, kind in _NETWORKS:
            if found := network.search(line.text):
                return Named(f"{found['address']} is an address of {kind}", (line,))
    return next((Named(f"the interface taken is {w}", (line,)) for _, w, line in taken), Named())


# ---- the two ends of a connection
_GID = r"\[?(?P<{}_gid>[0-9a-fA-F]*:[0-9a-fA-F:.]+)"
_PARTS = tuple(
    re.compile(each)
    for each in (
        # NCCL, whose lines begin with the host
        r"(?:^|\s)(?P<here_host>[\w.-]+):\d+:\d+ \[-?\d+\]",
        r"from peer (?P<there_host>[^\s<]+)<\d+>",
        r"localGids? " + _GID.format("here"),
        r"remoteGids? " + _GID.format("there"),
        r"\bhca (?P<here_device>\w+)",
        r"\bon dev (?P<here_device>\w+:\d+)",
        r"local GID " + _GID.format("here"),
        r"remote GID " + _GID.format("there"),
        # UCX
        r"\[(?P<here_host>[\w.-]+):\d+(?::\d+)+\]",
        r"exceeded on (?P<here_device>\w+:\d+)",
        r"\b(?:QP|qp|DCI|dci)(?: num)? (?P<here_qp>0x[0-9a-f]+)",
        r"\brqpn (?P<there_qp>0x[0-9a-f]+)",
        r"\brlid (?P<there_lid>\d+)",
        r"\bdgid[ =]" + _GID.format("there"),
        r" connect on (?P<here_device>\w+) failed",
        # Open MPI and MVAPICH
        r"Local host:\s+(?P<here_host>\S+)",
        r"Local device:\s+(?P<here_device>\S+)",
        r"(?:Peer|Remote) host(?:name)?:\s+(?P<there_host>\S+)",
        r"from (?P<here_host>[\w.-]+) to: (?P<there_host>[\w.-]+) error polling",
        r"\[(?P<here_host>[\w.-]+):mpi_rank_\d+\]",
        r"Msg from (?P<there_rank>\d+): wc\.status",
        # perftest
        r"local address:\s+LID (?P<here_lid>\S+) QPN (?P<here_qp>\S+)",
        r"remote address:\s+LID (?P<there_lid>\S+) QPN (?P<there_qp>\S+)",
        # libfabric's EFA provider
        r"My EFA addr: fi_addr_efa://" + _GID.format("here"),
        r"Peer EFA addr: fi_addr_efa://" + _GID.format("there"),
        r"My host id: (?P<here_host>[\w-]+)",
        r"Peer host id: (?P<there_host>[\w-]+)",
    )
)
_WORDS = {"host": "", "rank": "rank ", "device": "", "lid": "LID ", "gid": "GID ", "qp": "QP "}
_NO_LID = re.compile(r"0(?:x0+)?0*")


def endpoints(_: JobOutput, lines: Iterable[Evidence]) -> Named:
    """Name the two ends of the connection that an error, the first of ``lines``, is about."""
    parts: dict[str, str] = {}
    shown: dict[Evidence, None] = {}
    for line in lines:
        for found in filter(None, (pattern.search(line.text) for pattern in _PARTS)):
            for name, text in found.groupdict().items():
                known = name in parts or (name.endswith("_lid") and _NO_LID.fullmatch(text))
                if not known:
                    parts[name] = text
                    shown[line] = None
    here, there = _end(parts, "here"), _end(parts, "there")
    if there:
        return Named(f"from {here or 'this node'} to {there}", tuple(shown)[:3])
    return Named(f"from {here} to a peer that is not shown" if here else "", tuple(shown)[:1])


def _end(parts: Mapping[str, str], end: str) -> str:
    """Return ``gpu01 (mlx5_0, QP 0x12)``; empty if nothing is known of an end."""
    named = ((word, parts.get(f"{end}_{part}")) for part, word in _WORDS.items())
    words = [word + text for word, text in named if text is not None]
    return " ".join([*words[:1], *([f"({', '.join(words[1:])})"] if words[1:] else [])])


NAMERS: Mapping[Subject, Callable[[JobOutput, Iterable[Evidence]], Named]] = {
    "interface": interface,
    "endpoints": endpoints,
}
