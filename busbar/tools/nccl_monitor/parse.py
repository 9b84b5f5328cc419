# SPDX-License-Identifier: MIT
"""What NCCL says of a running job: ``ncclras -f json`` and the JSON of its Inspector plugin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from busbar.parse import numbers


@dataclass(frozen=True)
class Behind:
    """A rank that started fewer operations of one kind than others of its communicator."""

    rank: int
    operation: str
    count: int
    most: int


@dataclass(frozen=True)
class Missing:
    """A rank that did not answer."""

    rank: int
    host: str
    pid: int
    dead: bool


@dataclass(frozen=True)
class Ras:
    """The document of ``ncclras -f json``, from NCCL 2.28 on."""

    version: str
    ranks: int
    """Of the largest communicator."""
    hosts: tuple[str, ...]
    behind: tuple[Behind, ...]
    missing: tuple[Missing, ...]
    errors: Mapping[int, int]
    """NCCL's asynchronous error by rank."""


@dataclass(frozen=True)
class InspectedOperation:
    """One operation that the Inspector recorded; waiting for other ranks counts as its time."""

    name: str
    nbytes: int
    busbw: float
    algbw: float


@dataclass(frozen=True)
class InspectedPlace:
    """The process whose operations the Inspector recorded."""

    host: str
    pid: int
    ranks: int
    nodes: int


def parse_ras(text: str) -> Ras | None:
    """Parse the document; None for anything else. Raises ``ValueError`` if it is broken."""
    try:
        document = numbers.load_json(text)
    except ValueError:
        return None
    if not isinstance(document, dict) or "communicators" not in document:
        return None
    try:
        return _ras(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a document of ncclras: {error}") from None


def _ras(document: Mapping[str, Any]) -> Ras:
    whole = numbers.json_whole
    communicators = document["communicators"]
    ranks = [rank for each in communicators for rank in each["ranks"]]
    errors = {whole(r["rank"]): whole(r.get("status", {}).get("async_error", 0)) for r in ranks}
    return Ras(
        version=str(document.get("nccl_version", "")),
        ranks=max((whole(each["size"]) for each in communicators), default=0),
        hosts=tuple(dict.fromkeys(str(rank["host"]) for rank in ranks)),
        behind=tuple(rank for each in communicators for rank in _behind(each["ranks"])),
        missing=tuple(
            Missing(
                whole(rank["rank"]),
                str(rank["host"]),
                whole(rank["pid"]),
                bool(rank.get("status", {}).get("considered_dead")),
            )
            for each in communicators
            for rank in each.get("missing_ranks", ())
        ),
        errors={rank: error for rank, error in errors.items() if error},
    )


def _behind(ranks: Sequence[Mapping[str, Any]]) -> Iterator[Behind]:
    whole = numbers.json_whole
    most: Counter[str] = Counter()
    for rank in ranks:
        for operation, count in rank.get("collective_counts", {}).items():
            most[operation] = max(most[operation], whole(count))
    for rank in ranks:
        for operation, count in rank.get("collective_counts", {}).items():
            if whole(count) < most[operation]:
                yield Behind(whole(rank["rank"]), operation, whole(count), most[operation])


def parse_record(line: bytes) -> tuple[InspectedPlace | None, InspectedOperation | None] | None:
    """Parse a line of the Inspector; None for others.

    Before version 4.3 of its format each line names its process, then only the first of a dump.
    """
    whole, real = numbers.json_whole, numbers.json_real
    try:
        record = numbers.load_json(line)
        place = operation = None
        if "header" in record and "metadata" in record:
            header, metadata = record["header"], record["metadata"]
            place = InspectedPlace(
                str(metadata["hostname"]),
                whole(metadata["pid"]),
                whole(header["n_ranks"]),
                whole(header["nnodes"]),
            )
        if "coll_perf" in record:
            row = record["coll_perf"]
            operation = InspectedOperation(
                str(row["coll"]),
                whole(row["coll_msg_size_bytes"]),
                real(row["coll_busbw_gbs"]),
                real(row["coll_algobw_gbs"]),
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return (place, operation) if place or operation else None
