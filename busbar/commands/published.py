# SPDX-License-Identifier: MIT
"""``busbar site published``: what others measured, beside limit and band."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.errors import BusbarError
from busbar.expect.published import TABLE, Comparison, compare, readings
from busbar.parse.published import PublishedReading, parse_links
from busbar.site.model import Site
from busbar.terminal import Group, Table, stdout
from busbar.units import format_bytes

SCHEMA = "busbar-published/1"


def add_parser(commands: Any) -> None:
    """Add ``busbar site published``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "published",
        help="print published readings beside limit and band",
        description=(
            "Print what centers, vendors and clouds published, with the limit and the band of"
            " their systems. A reading is inside its band, below or above it, or impossible (above"
            " the limit). A threshold is the minimum of a health check. Exit status: 0 printed, 2"
            " invalid input or no such reading."
        ),
    )
    parser.add_argument(
        "--gpu", metavar="TEXT", help="only GPUs whose name contains TEXT, such as H100"
    )
    parser.add_argument(
        "--site", help="only systems with the GPU links of this site (name or directory)"
    )
    parser.add_argument("--bench", metavar="NAME", help="only this benchmark")
    parser.add_argument(
        "--table",
        type=Path,
        default=TABLE,
        metavar="FILE",
        help="another table with the same columns",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_command)


def run_command(args: argparse.Namespace) -> int:
    """Print the readings that the options select."""
    site = sites.load(args.site) if args.site else None
    chosen = list(_chosen(readings(args.table), args.gpu, args.bench, site))
    if not chosen:
        raise BusbarError(
            "no published reading of this kind",
            where=str(args.table),
            hint="omit --gpu, --site or --bench to see all of them",
        )
    found = [compare(reading) for reading in chosen]
    if args.json:
        rows = [each.as_json() for each in found]
        stdout().document({"schema": SCHEMA, "readings": rows})
    else:
        systems = groupby(found, key=lambda each: (each.reading.system, each.reading.gpu))
        stdout().show(Group(*(_table(list(rows)) for _, rows in systems)))
    return 0


def _chosen(
    rows: Iterable[PublishedReading], gpu: str | None, bench: str | None, site: Site | None
) -> Iterator[PublishedReading]:
    classes = site.node.gpus.link_classes() if site and site.node.gpus else set()
    for row in rows:
        links = parse_links(row.intra)
        if (
            (gpu is None or gpu.lower() in row.gpu.lower())
            and bench in (None, row.bench)
            and (site is None or (links and links.link_class in classes))
        ):
            yield row


def _table(found: Sequence[Comparison]) -> Table:
    """Return the readings of one system, with its hardware as the title."""
    first = found[0].reading
    networks = dict.fromkeys(each.reading.fabric for each in found)
    title = f"{first.system}: {first.gpu}, {first.intra}; {', '.join(networks)}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("benchmark", no_wrap=True)
    for column in ("nodes x GPUs", "size", "GB/s", "limit", "band"):
        table.add_column(column, justify="right", no_wrap=column == "band")
    table.add_column("kind", no_wrap=True)
    table.add_column("place", no_wrap=True)
    for each in found:
        row, band = each.reading, each.expected
        table.add_row(
            *(f"{row.bench} {row.algo}".strip(), f"{row.nodes} x {row.gpus_per_node}"),
            *(format_bytes(row.nbytes), f"{row.value:.4g}{' us' * (row.unit == 'us')}"),
            f"{each.limit:.4g}" if each.limit is not None else "-",
            f"{band.low:.3g}-{band.high:.3g}" if band else "-",
            *(row.kind, each.place),
        )
    return table
