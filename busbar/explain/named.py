# SPDX-License-Identifier: MIT
"""What a network error is about: the interface that was taken, the two ends of a connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.parse.tables import beside

Subject = Literal["interface", "endpoints"]


class Named(NamedTuple):
    """A part of a summary, and the line that shows it."""

    text: str = ""
    evidence: tuple[Evidence, ...] = ()


# ---- the interface
_TABLES = beside(__file__)
_KINDS = _TABLES["interfaces"]
_KIND_OF_NAME = [(re.compile(names), kind) for names, kind in _KINDS.items()]
_ODD_NAME = re.compile(rf"(?<![\w.:/@-])(?P<name>{'|'.join(_KINDS)})(?![\w.-])")
_NETWORKS = [(re.compile(network), kind) for network, kind in _TABLES["networks"].items()]
_PARTS = [re.compile(each) for each in _TABLES["ends"]]


def _kind(name: str) -> str:
    return next((kind for names, kind in _KIND_OF_NAME if names.fullmatch(name)), "")


def _taken(facts: JobOutput) -> Iterator[tuple[str, str, Evidence]]:
    """Yield name, address and line of each interface that a library says it takes."""
    for seen in (*facts.seen("nccl.bootstrap"), *facts.seen("nccl.socket")):
        yield seen["interface"], seen["address"], seen.evidence
    for setting in map(facts.setting, _TABLES["settings"]):
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
    return next((Named(f"the interface in use is {w}", (line,)) for _, w, line in taken), Named())


# ---- the two ends of a connection
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
