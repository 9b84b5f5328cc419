# SPDX-License-Identifier: MIT
"""Tables of published readings: tab-separated columns, one reading a line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from busbar.parse import numbers

Kind = Literal["measured", "threshold", "reference", "broken"]
COLUMNS = (
    *("system", "gpu", "gpus_per_node", "nodes", "intra", "fabric", "bench", "bytes", "value"),
    *("unit", "inout", "algo", "harness", "kind", "source"),
)


class PublishedReading(NamedTuple):
    """One line of the table."""

    system: str
    gpu: str
    """Model name by the vendor."""
    gpus_per_node: int
    """GPUs that take part; 0 for host memory only."""
    nodes: int
    intra: str
    """Links within the node, in words."""
    fabric: str
    """Network, in words."""
    bench: str
    nbytes: int
    value: float
    unit: str
    algo: str
    """Empty if the source does not state it."""
    harness: str
    kind: Kind
    source: str


class IntraLinks(NamedTuple):
    """Links within a node."""

    form: Literal["switched", "all pairs", "cube", "cube mesh", "host", "package", "none"]
    link_class: str = ""
    links: int = 0
    domain_gpus: int = 0
    """GPUs of all nodes that the same switches connect; 0: those of one node."""


class Network(NamedTuple):
    """NICs of a node."""

    kind: str
    """``infiniband``, ``roce``, ``efa``, ``slingshot11``."""
    nics: int
    gbit_per_s: int


_LINKS = re.compile(
    r"(?P<link>[a-z]+\d?(?:-[a-z0-9]+)?) x(?P<count>\d{1,3})"
    r" (?P<form>switched|all pairs|cube mesh)(?: \((?P<domain>\d{1,4})-GPU domain\))?"
)
_NETWORK = re.compile(r"(?P<kind>[a-z]+\d*) (?P<nics>\d{1,3})x(?P<rate>\d{1,4})G")
_PART = re.compile(r"\[\d{1,3} of (?P<whole>\d{1,3}) GPUs a node\]")
_LINKS_OF_PAIR = re.compile(r"\[(?P<count>\d) links?: ")


def parse_table(text: str) -> list[PublishedReading]:
    """Parse a table. Raises ``ValueError`` with the line of the first error."""
    rows = csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
    if tuple(rows.fieldnames or ()) != COLUMNS:
        raise ValueError(f"line 1: the columns must be {', '.join(COLUMNS)}")
    return list(_rows(rows))


def _rows(rows: csv.DictReader[str]) -> Iterator[PublishedReading]:
    for row in rows:
        where = f"line {rows.line_num}"
        if None in row or None in row.values():
            raise ValueError(f"{where}: a row has {len(COLUMNS)} columns")
        value = numbers.real(row["value"])
        counts = [numbers.whole(row[name]) for name in ("gpus_per_node", "nodes", "bytes")]
        gpus, nodes, nbytes = counts
        if value is None or gpus is None or nodes is None or nbytes is None:
            raise ValueError(f"{where}: value, gpus_per_node, nodes and bytes must be numbers")
        kinds = {kind: kind for kind in get_args(Kind)}
        if row["kind"] not in kinds:
            raise ValueError(f"{where}: kind must be one of {', '.join(kinds)}")
        yield PublishedReading(
            *(row["system"], row["gpu"], gpus, nodes, row["intra"], row["fabric"], row["bench"]),
            *(nbytes, value, row["unit"], row["algo"].strip("-").lower(), row["harness"]),
            *(kinds[row["kind"]], row["source"]),
        )


def parse_links(text: str) -> IntraLinks | None:
    """Parse the links of a node; None if the words are not known."""
    if text.startswith("none"):
        return IntraLinks("none")
    if text.startswith("in package"):
        return IntraLinks("package")
    if text.startswith("xgmi-mi250x cube"):
        return IntraLinks("cube", "xgmi-mi250x")
    if re.match(r"pcie\d", text):
        return IntraLinks("host", f"{text[:5]}-x16")
    match = _LINKS.match(text)
    if not match:
        return None
    forms: dict[str, Literal["switched", "all pairs", "cube mesh"]] = {
        "switched": "switched",
        "all pairs": "all pairs",
        "cube mesh": "cube mesh",
    }
    domain = numbers.count(match["domain"]) if match["domain"] else 0
    return IntraLinks(forms[match["form"]], match["link"], numbers.count(match["count"]), domain)


def parse_network(text: str) -> Network | None:
    """Parse the NICs of a node; None without any."""
    match = _NETWORK.match(text)
    if not match:
        return None
    return Network(match["kind"], numbers.count(match["nics"]), numbers.count(match["rate"]))


def gpus_of_node(reading: PublishedReading) -> int:
    """Return the GPUs of a node, of which only some may take part."""
    match = _PART.search(reading.source)
    return numbers.count(match["whole"]) if match else reading.gpus_per_node


def links_of_pair(reading: PublishedReading) -> int | None:
    """Return the direct links of the pair of a reading; 0 for none, None if not stated."""
    if "[no direct link" in reading.source:
        return 0
    match = _LINKS_OF_PAIR.search(reading.source)
    return numbers.count(match["count"]) if match else None
